"""CPU seconds of a command: of a head, of a directory, and beside what peers need to say anything.

python benchmarks/cli.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from report import NO_BAR, Outcome, Table, at_most
from trial import (
    NOT_INSTALLED,
    PEERS_PYTHON,
    Options,
    TrialFailed,
    directory,
    environment,
    is_installed,
)

from runwatch.address import read_address

BAR_SECONDS = 0.3
PROGRAM = """
import runwatch
with runwatch.init("line") as run:
    for step, x in run.steps(range(1000)):
        run.log(loss=1 / (step + 1), accuracy=step / 1000)
"""
ASKED = (
    "runs", "runs --json", "show line", "goodput line", "devices", "session list", "profiles",
    "token list", "export line", "status", "config",
)  # fmt: skip
OPENED = ("runs", "goodput line")
PEERS = (("wandb", "--version"), ("mlflow", "--version"), ("trackio", "--help"))
START_SECONDS = 60.0


def measure(options: Options) -> Outcome:
    rounds = 3 if options.quick else 10
    with directory() as place:
        env = environment(place)
        subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True)
        ours = [sys.executable, "-m", "runwatch.cli"]
        cases = {"python -c pass": [sys.executable, "-c", "pass"]}
        cases["runwatch --version"] = [*ours, "--version"]
        with _head(place, env) as address:
            asked = {f"runwatch {words}, a head": [*ours, *words.split()] for words in ASKED}
            numbers = _rounds(cases | asked | _peers(), env | {"RUNWATCH_HEAD": address}, rounds)
        opened = {f"runwatch {words}, a directory": [*ours, *words.split()] for words in OPENED}
        numbers |= _rounds(opened, env, rounds)
    return Outcome([_table(numbers)], numbers)


def _peers() -> dict[str, list[str]]:
    there = [each for each in PEERS if is_installed(str(PEERS_PYTHON), each[0])]
    return {
        f"{module} {word}": [str(PEERS_PYTHON.with_name(module)), word] for module, word in there
    }


@contextmanager
def _head(place: Path, env: dict[str, str]) -> Iterator[str]:
    command = [sys.executable, "-m", "runwatch.cli", "ui", str(place), "--port", "0"]
    head = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while (at := read_address(place)) is None or at.pid != head.pid:
            if head.poll() is not None or time.monotonic() > deadline:
                raise TrialFailed("the head did not start")
            time.sleep(0.05)
        yield at.http
    finally:
        head.terminate()
        head.wait()


def _rounds(cases: dict[str, list[str]], env: dict[str, str], rounds: int) -> dict[str, Any]:
    """In turn; the first round, which writes bytecode and fills caches, does not count."""
    numbers: dict[str, Any] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, command in cases.items():
            seconds = _cpu_seconds(name, command, env)
            if number:
                numbers[name].append(seconds)
    return numbers


def _cpu_seconds(name: str, command: list[str], env: dict[str, str]) -> float:
    # `status` says by its exit code that something needs attention: that is an answer.
    child = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode not in (0, 1):
        raise TrialFailed(f"{name}: {said[-1000:].decode(errors='replace')}")
    return used.ru_utime + used.ru_stime


def _table(numbers: dict[str, Any]) -> Table:
    table = Table("A command", ("command", "CPU s, best (median)", "bar", ""))
    for name, seconds in numbers.items():
        middle = statistics.median(seconds)
        bar = at_most(middle, BAR_SECONDS, "s") if name.endswith("a head") else NO_BAR
        table.rows.append((name, f"{min(seconds):.2f} ({middle:.2f})", *bar))
    for module, word in PEERS:
        if f"{module} {word}" not in numbers:
            table.rows.append((f"{module} {word}", NOT_INSTALLED, "", ""))
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, None, measure)


if __name__ == "__main__":
    main()
