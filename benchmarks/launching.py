"""What `runwatch exec` costs a command: its start, its output, and a loop with a line per step.

    python benchmarks/launching.py [--quick]

The same commands bare, through a pipe to `cat`, under `script` where that is installed, and under
`runwatch exec`.  Processor time is that of all processes that came of a command, also those that
outlive it for a moment.  The loop sleeps 5 ms and writes a line; it notes how long it had to wait
for that line, in the median.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from report import NO_BAR, Outcome, Table, at_most
from trial import Options, directory, environment

START_BAR_SECONDS = 0.1
LOOP_BAR_PERCENT = 0.5
STEP_SECONDS = 0.005
_SET_CHILD_SUBREAPER = 36
BARE = "bare"
OURS = "runwatch exec"
BEGUN = "import os, time; print(time.time() - float(os.environ['BEGAN']))"
LOOP = f"""
import statistics, time
waits = []
for step in range(STEPS):
    time.sleep({STEP_SECONDS})
    before = time.perf_counter()
    print("step", step, "loss", 1 / (step + 1), flush=True)
    waits.append(time.perf_counter() - before)
print(statistics.median(waits))
"""


class Spent(NamedTuple):
    wall: float
    cpu: float
    said: float = 0.0
    """The number in the last line that the command wrote, if it is one."""


def measure(options: Options) -> Outcome:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whoever is left comes to us
    rounds, size, steps = (3, "50M", 200) if options.quick else (10, "1G", 2000)
    loop = [sys.executable, "-c", LOOP.replace("STEPS", str(steps))]
    lines = ["sh", "-c", f"yes 'step 10 of 100, loss 0.123, 4.5 it/s' | head -c {size}"]
    with directory() as place:
        env = environment(place)
        starts = _rounds([sys.executable, "-Ic", BEGUN], env, rounds)
        floods = _rounds(lines, env, max(rounds // 3, 1))
        loops = _rounds(loop, env, max(rounds // 3, 1))
    numbers = {"start": starts, "flood": floods, "loop": loops}
    tables = [_starts(starts), _floods(floods, size), _loops(loops, starts, steps)]
    return Outcome(tables, {name: _plain(found) for name, found in numbers.items()})


def _ways(command: list[str]) -> dict[str, list[str]]:
    words = shlex.join(command)
    ways = {BARE: command, "| cat": ["sh", "-c", f"{words} | cat"]}
    if shutil.which("script"):
        ways["script"] = ["script", "-qec", words, "/dev/null"]
    return ways | {OURS: [sys.executable, "-m", "runwatch.cli", "exec", "--", *command]}


def _rounds(command: list[str], env: dict[str, str], rounds: int) -> dict[str, list[Spent]]:
    """In turn; the first round, which fills caches, does not count."""
    found: dict[str, list[Spent]] = {name: [] for name in _ways(command)}
    for number in range(rounds + 1):
        for name, words in _ways(command).items():
            spent = _spent(words, env)
            if number:
                found[name].append(spent)
    return found


def _spent(words: list[str], env: dict[str, str]) -> Spent:
    env = env | {"BEGAN": repr(time.time())}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    read, write = os.pipe()
    child = subprocess.Popen(
        words, env=env, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL
    )
    os.close(write)
    last = b""
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while piece := pipe.read(1 << 20):
            last = (last + piece)[-100:]
    child.wait()
    wall = time.time() - began
    while True:  # those that our commands left for a moment
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        return Spent(wall, cpu, float(last.split()[-1]))
    except (ValueError, IndexError):
        return Spent(wall, cpu)


def _starts(found: dict[str, list[Spent]]) -> Table:
    title = ("way", "s until it runs, best (median)", "CPU s in all, more", "bar", "")
    table = Table("A command begins", title)
    bare, cpu = min(each.said for each in found[BARE]), _cpu(found[BARE])
    for name, spent in found.items():
        best, middle = (f(each.said for each in spent) - bare for f in (min, statistics.median))
        bar = at_most(best, START_BAR_SECONDS, "s") if name == OURS else NO_BAR
        more = f"{_cpu(spent) - cpu:.2f}"
        table.rows.append((name, f"{best:.3f} ({middle:.3f})", more, *bar))
    return table


def _floods(found: dict[str, list[Spent]], size: str) -> Table:
    table = Table(f"{size} of lines", ("way", "wall s, best", "CPU s, best"))
    for name, spent in found.items():
        table.rows.append((name, f"{min(e.wall for e in spent):.2f}", f"{_cpu(spent):.2f}"))
    return table


def _loops(found: dict[str, list[Spent]], starts: dict[str, list[Spent]], steps: int) -> Table:
    title = ("way", "µs for a line", "more, of 5 ms", "CPU µs a step, elsewhere", "bar", "")
    table = Table(f"{steps} steps of 5 ms, a line each", title)
    bare, cpu = min(each.said for each in found[BARE]), _cpu(found[BARE]) - _cpu(starts[BARE])
    for name, spent in found.items():
        best = min(each.said for each in spent)
        percent = 100 * (best - bare) / STEP_SECONDS
        elsewhere = (_cpu(spent) - _cpu(starts[name]) - cpu) / steps * 1e6
        bar = at_most(percent, LOOP_BAR_PERCENT, "%") if name == OURS else NO_BAR
        row = (name, f"{best * 1e6:.1f}", f"{percent:.2f} %", f"{elsewhere:.0f}")
        table.rows.append((*row, *bar))
    return table


def _cpu(spent: list[Spent]) -> float:
    return min(each.cpu for each in spent)


def _plain(found: dict[str, list[Spent]]) -> dict[str, Any]:
    return {name: [tuple(each) for each in spent] for name, spent in found.items()}


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, None, measure)


if __name__ == "__main__":
    main()
