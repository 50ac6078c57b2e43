"""What one look at all threads costs, for how long it holds the process up, and what it costs
a training loop to be watched.

    python benchmarks/stacks.py [--quick]

The process has 50 threads of 25 frames each that wait, and a main thread that does nothing but
read the clock: the longest gap between two readings is how long it was held up.

The loop that is watched is in `steps_watched.py`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import mmap
import os
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import steps_watched
from command import run_one
from report import NO_BAR, Outcome, Table, at_most
from trial import Options, TrialFailed, directory, environment, is_installed, until

from runwatch.capture.asking import STACKS_FILE, ask_stacks
from runwatch.capture.outside import look
from runwatch.capture.stacks import STACK_SIGNAL, own_stacks
from runwatch.record.stacks import Stacks

THREADS, DEPTH = 50, 25
BAR_MS = 20.0
# Shared with the process: the round it is to measure, and the longest gap in that round.
SHARED = struct.Struct("<QQ")


def measure(options: Options) -> Outcome:
    rounds = 5 if options.quick else 40
    numbers: dict[str, Any] = {"plain": _trial(rounds, "plain")}
    inside = numbers["plain"]["inside"]
    tables = [_inside_table(inside), _outside_table(numbers["plain"], "")]
    if is_installed(sys.executable, "torch"):
        numbers["torch"] = _trial(rounds, "torch")
        tables.append(_outside_table(numbers["torch"], ", torch imported"))
    for kind in steps_watched.WORK:
        rounds, processes = (5, 1) if options.quick else (60, 3)
        trials = [steps_watched.trial(__file__, rounds, kind) for _ in range(processes)]
        numbers[f"watched, {kind}"] = trials
        tables.append(steps_watched.table(trials, kind))
    return Outcome(tables, numbers)


# ── the process that is looked at ─────────────────────────────────────────────────────────────


def work(asked: dict[str, Any]) -> None:
    if asked["kind"] == "watched":
        steps_watched.work(asked)
        return
    place, rounds = Path(asked["place"]), asked["rounds"]
    if asked["kind"] == "torch":
        import torch  # noqa: F401
    _start_threads()
    dump = open(place / STACKS_FILE, "a")  # noqa: SIM115
    faulthandler.register(STACK_SIGNAL, file=dump, all_threads=True, chain=False)
    with open(place / "dump.txt", "w+") as file:
        ways: dict[str, Callable[[], object]] = {
            "own_stacks()": own_stacks,
            "own_stacks().body()": lambda: own_stacks().body(),
            "faulthandler.dump_traceback(all_threads=True)": partial(_dump, file),
        }
        spent = {name: [_seconds(way) for _ in range(rounds)] for name, way in ways.items()}
    print(json.dumps(spent), flush=True)
    _read_the_clock(place / "shared")


def _dump(file: Any) -> None:
    os.ftruncate(file.fileno(), 0)
    faulthandler.dump_traceback(file, all_threads=True)


def _start_threads() -> None:
    never, ready = threading.Event(), threading.Barrier(THREADS + 1)

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            ready.wait()
            never.wait()

    # The thread's own frames and those of the wait are among the 25.
    for number in range(THREADS):
        thread = threading.Thread(target=deeper, args=(DEPTH - 6,), name=f"worker-{number}")
        thread.daemon = True
        thread.start()
    ready.wait()


def _seconds(way: Callable[[], object]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def _read_the_clock(path: Path) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), SHARED.size) as shared:
        known, longest, last = 0, 0, time.perf_counter_ns()
        while True:
            now = time.perf_counter_ns()
            gap, last = now - last, now
            (wanted,) = struct.unpack_from("<Q", shared)
            if wanted != known:
                known, longest = wanted, 0
            elif gap > longest:
                longest = gap
                struct.pack_into("<Q", shared, 8, longest)


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def _trial(rounds: int, kind: str) -> dict[str, Any]:
    with directory() as place:
        (place / "shared").write_bytes(bytes(SHARED.size))
        asked = json.dumps({"place": str(place), "rounds": rounds, "kind": kind})
        process = subprocess.Popen(
            [sys.executable, __file__, "--worker", asked],
            env=environment(place),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            inside = process.stdout.readline()
            if not inside:
                raise TrialFailed(f"the process to look at ended: {process.wait()}")
            found = _looks(process.pid, place, rounds)
        finally:
            process.kill()
            process.communicate()
    return {"inside": json.loads(inside), **found}


def _looks(pid: int, place: Path, rounds: int) -> dict[str, Any]:
    ways: dict[str, Callable[[], Stacks | None]] = {
        "nobody looks (50 ms)": lambda: time.sleep(0.05),
        "from outside, native frames": lambda: look(pid),
        "from outside, Python frames": lambda: look(pid, native=False),
        "from outside, not paused": lambda: look(pid, native=False, pause=False),
        "asked by signal": lambda: ask_stacks(place, pid, ask=None),
    }
    with open(place / "shared", "r+b") as file, mmap.mmap(file.fileno(), SHARED.size) as shared:
        return {
            name: [_one(way, shared, name) for _ in range(rounds)] for name, way in ways.items()
        }


def _one(way: Callable[[], Stacks | None], shared: mmap.mmap, name: str) -> tuple[float, float]:
    """Seconds for who looks, and seconds the process was held up."""
    number, _ = SHARED.unpack_from(shared)
    SHARED.pack_into(shared, 0, number + 1, 0)
    until(lambda: SHARED.unpack_from(shared)[1], 10, "the process to notice the round")
    begin = time.perf_counter()
    seen = way()
    took = time.perf_counter() - begin
    if seen is not None and len(seen.threads) != THREADS + 1:
        raise TrialFailed(f"{name}: {len(seen.threads)} threads seen; {seen.problems}")
    return took, SHARED.unpack_from(shared)[1] / 1e9


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def _inside_table(numbers: dict[str, list[float]]) -> Table:
    table = Table(
        f"One dump of {THREADS + 1} threads × {DEPTH} frames, from inside",
        ("way", "ms, median (worst)", "bar", ""),
    )
    for name, seconds in numbers.items():
        middle = statistics.median(seconds) * 1e3
        table.rows.append((name, _cell(seconds), *at_most(middle, BAR_MS, "ms")))
    return table


def _outside_table(numbers: dict[str, list[tuple[float, float]]], what: str) -> Table:
    table = Table(
        f"One look at {THREADS + 1} threads × {DEPTH} frames of another process{what}",
        ("way", "ms for who looks, median (worst)", "ms held up, median (worst)", "bar", ""),
    )
    for name, pairs in numbers.items():
        if name == "inside":
            continue
        held = [pair[1] for pair in pairs]
        bar = NO_BAR
        if "native" not in name and "nobody" not in name:
            bar = at_most(statistics.median(held) * 1e3, BAR_MS, "ms")
        table.rows.append((name, _cell([pair[0] for pair in pairs]), _cell(held), *bar))
    table.notes.append(
        "Held up: the longest time for which the main thread did not run, others' turns included."
    )
    return table


def _cell(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.1f} ({max(seconds) * 1e3:,.1f})"


def main() -> None:
    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
