"""What the agent costs: CPU in percent of one core, at one sample a second.

    python benchmarks/agent.py [--quick]

An agent by itself, with eight live run processes on the node (each records 20 scalars ten times a
second), and with the same eight while it ships what they record to a head; and on a node where
2,000 journals of earlier processes lie, once it has looked them through.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from loop import TWENTY
from report import Outcome, Table, at_most
from trial import Options, TrialFailed, directory, environment, until

from runwatch.address import read_address
from runwatch.agent.lock import AgentLock
from runwatch.journal.liveness import boot_id, this_host
from runwatch.journal.segment import MIN_SEGMENT_BYTES, new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import Origin, RunId, RunScope

BAR_PERCENT = 1.0
RUNS = 8
OLD_JOURNALS = 2_000
SETTLE_SECONDS = 4.0
QUIET_SECONDS = 0.05
NO_PID = 5_000_000
"""Linux gives none so large."""


def work(request: dict[str, Any]) -> None:
    """A run that lives until it is told to end."""
    import runwatch

    run = runwatch.init(request["run"])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    for step in range(10**9):
        run.log(TWENTY, step)
        time.sleep(0.1)
        if ended:
            break
    run.finish()


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


@contextmanager
def python(place: Path, *command: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment(place, **variables),
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def head() -> Iterator[str]:
    with directory() as place:
        ports = ("--grpc-port", "0", "--http-port", "0")
        with python(place, "-m", "runwatch.cli", "head", "--dir", str(place), *ports):
            until(lambda: read_address(place), 60, "the head to start")
            at = read_address(place)
            assert at is not None
            yield at.grpc


def leave_journals(place: Path, count: int) -> None:
    for number in range(count):
        journal = new_journal_id(this_host(), NO_PID + number, number * 10**9, "old")
        origin = Origin(journal, this_host(), NO_PID + number, number * 10**9, boot_id(), 1)
        writer = JournalWriter(place, origin, segment_bytes=MIN_SEGMENT_BYTES)
        writer.scope(RunScope(0, RunId(f"old-{number}"), f"old-{number}"))
        writer.point(writer.series("loss"), 1.0)
        writer.close()


def trial(runs: int, ships: bool, old: int, seconds: float) -> dict[str, float]:
    with ExitStack() as stack:
        address = stack.enter_context(head()) if ships else ""
        place = stack.enter_context(directory())
        leave_journals(place, old)
        for number in range(runs):
            request = f'{{"run": "run-{number}"}}'
            stack.enter_context(python(place, __file__, "--worker", request))
        arguments = ["-m", "runwatch.agent", "--dir", str(place), "--idle", "0"]
        if address:
            arguments += ["--head", address]
        agent = stack.enter_context(python(place, *arguments))
        lock = AgentLock(place, os.uname().nodename)
        until(lambda: lock.holder() == agent.pid or agent.poll() is not None, 30, "the agent")
        time.sleep(SETTLE_SECONDS)
        if agent.poll() is not None:
            raise TrialFailed((place / "log").read_text(errors="replace")[-2000:])
        until(lambda: cpu_in_a_second(agent.pid) < QUIET_SECONDS, 120, "the agent to settle")
        before, begin = cpu_seconds(agent.pid), time.perf_counter()
        time.sleep(seconds)
        used = cpu_seconds(agent.pid) - before
        return {
            "percent": 100 * used / (time.perf_counter() - begin),
            "memory_mb": memory_mb(agent.pid),
        }


def cpu_seconds(pid: int) -> float:
    """Of all its threads, from the scheduler's own count of nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def cpu_in_a_second(pid: int) -> float:
    before = cpu_seconds(pid)
    time.sleep(1.0)
    return cpu_seconds(pid) - before


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def measure(options: Options) -> Outcome:
    seconds, rounds = (6.0, 1) if options.quick else (20.0, 2)
    cases = {
        "agent, no run": (0, False, 0),
        f"agent, {RUNS} runs": (RUNS, False, 0),
        f"agent, {RUNS} runs, shipping to a head": (RUNS, True, 0),
        f"agent, no run, {OLD_JOURNALS:,} old journals": (0, False, OLD_JOURNALS),
        f"agent, no run, {OLD_JOURNALS:,} old journals, a head": (0, True, OLD_JOURNALS),
    }
    numbers: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            numbers[name].append(trial(*case, seconds))
    return Outcome([_table(numbers, seconds)], {"agent": numbers})


def _table(numbers: dict[str, list[dict[str, float]]], seconds: float) -> Table:
    head = ("case", "% of one core, median (best)", "resident MB", "bar", "")
    table = Table("Agent at 1 Hz", head)
    for name, rounds in numbers.items():
        middle = statistics.median(one["percent"] for one in rounds)
        best = min(one["percent"] for one in rounds)
        memory = statistics.median(one["memory_mb"] for one in rounds)
        cells = (f"{middle:.2f} ({best:.2f})", f"{memory:.0f}")
        table.rows.append((name, *cells, *at_most(middle, BAR_PERCENT, "%")))
    count = len(next(iter(numbers.values())))
    table.notes.append(
        f"{count} rounds of {seconds:g} s; {len(TWENTY)} scalars ten times a second from each run. "
        "No GPU in this machine."
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, work, measure)


if __name__ == "__main__":
    main()
