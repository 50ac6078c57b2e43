"""What one look at all threads costs, for how long it holds the process up, and what it costs
a training loop to be watched.

    python benchmarks/stacks.py [--quick]

The process has 50 threads of 25 frames each that wait, and a main thread that does nothing but
read the clock: the longest gap between two readings is how long it was held up.

The loop is that of `loop.py`, NumPy steps of about 5 ms in blocks of ten, of which every other is
watched: its steps are recorded, a `diagnose` block with dumps every ten minutes is around it, the
control socket is served, and an agent looks after the process.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
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

from command import run_one
from loop import BLOCK, numpy_step
from report import NO_BAR, Outcome, Table, at_most
from trial import Options, TrialFailed, directory, environment, is_installed, until

from runwatch.capture.asking import STACKS_FILE, ask_stacks
from runwatch.capture.outside import look
from runwatch.capture.stacks import STACK_SIGNAL, Stacks, own_stacks

THREADS, DEPTH = 50, 25
BAR_MS, WATCHED_PERCENT = 20.0, 0.2
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
    numbers["watched"] = [_watched_trial(10 if options.quick else 300) for _ in range(3)]
    tables.append(_watched_table(numbers["watched"]))
    return Outcome(tables, numbers)


# ── the process that is looked at ─────────────────────────────────────────────────────────────


def work(asked: dict[str, Any]) -> None:
    if asked["kind"] == "watched":
        watched(asked["pairs"])
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
            "own_stacks().to_json()": lambda: own_stacks().to_json(),
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


# ── the loop that is watched ──────────────────────────────────────────────────────────────────


Notes = list[tuple[int, int]]
"""Of each step: nanoseconds in all, and those that recording it took."""


def watched(pairs: int) -> None:
    import runwatch
    from runwatch.configuration import debug_configuration, diagnostic_configuration
    from runwatch.configuration.stack_trace_configuration import StackTraceConfig

    dumps = StackTraceConfig(
        collect_stack_trace=True, stack_trace_to_cloud=True, stack_trace_interval_seconds=600
    )
    config = diagnostic_configuration.DiagnosticConfig(debug_configuration.DebugConfig(dumps))
    train, run = numpy_step(), runwatch.init("watched")
    clock, number = time.perf_counter_ns, 0

    def bare(note: Notes) -> None:
        for _ in range(BLOCK):
            begin = clock()
            first = clock()
            train()
            last = clock()
            note.append((clock() - begin, first - begin + clock() - last))

    def recorded(note: Notes) -> None:
        nonlocal number
        for _ in range(BLOCK):
            begin = clock()
            with run.step(number):
                first = clock()
                train()
                last = clock()
            end = clock()
            note.append((end - begin, first - begin + end - last))
            number += 1

    def dumped(note: Notes) -> None:
        with runwatch.diagnose(config):
            recorded(note)

    until(lambda: run._control is not None, 30, "the control socket")
    found: dict[str, list[float]] = {"recorded / bare": [], "watched / recorded": []}
    calls: dict[str, list[int]] = {"bare": [], "recorded": [], "watched": []}
    cpu, mine, wall = time.process_time(), time.thread_time(), time.perf_counter()
    for pair in range(pairs):
        notes: dict[str, Notes] = {"bare": [], "recorded": [], "watched": []}
        kinds = [("bare", bare), ("recorded", recorded), ("watched", dumped)]
        for name, block in kinds[pair % 3 :] + kinds[: pair % 3]:  # a drift hits all of them
            block(notes[name])
        best = {name: min(note)[0] for name, note in notes.items()}
        for name, note in notes.items():
            calls[name] += [call for _, call in note]
        found["recorded / bare"].append(best["recorded"] / best["bare"])
        found["watched / recorded"].append(best["watched"] / best["recorded"])
    wall = time.perf_counter() - wall
    others = (time.process_time() - cpu) - (time.thread_time() - mine)
    run.finish()
    middle = {name: statistics.median(took) / 1e3 for name, took in calls.items()}
    told = {"ratios": found, "call_us": middle, "other_threads": others / wall}
    print(json.dumps(told), flush=True)


def _watched_trial(pairs: int) -> dict[str, Any]:
    from runwatch.agent.lock import end_agents

    with directory() as place:
        asked = json.dumps({"kind": "watched", "pairs": pairs})
        command = [sys.executable, __file__, "--worker", asked]
        more = {"RUNWATCH_AGENT": "on", "RUNWATCH_STACKS_DIR": str(place / "debugging")}
        try:
            done = subprocess.run(
                command,
                env=environment(place) | more,
                stdout=subprocess.PIPE,
                text=True,
                timeout=300,
                check=False,
            )
        finally:
            end_agents(place)
    if done.returncode:
        raise TrialFailed(f"the watched loop ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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


def _watched_table(trials: list[dict[str, Any]]) -> Table:
    table = Table(
        "A loop of 5 ms steps that is watched",
        ("beside", "slower by %", "calls, µs a step", "other threads, % of a core", "bar", ""),
    )
    threads = statistics.median(trial["other_threads"] for trial in trials) * 100
    call = {
        kind: statistics.median(trial["call_us"][kind] for trial in trials)
        for kind in ("bare", "recorded", "watched")
    }
    for name in trials[0]["ratios"]:
        kind, _, other = name.partition(" / ")
        more = call[kind] - call[other]
        ratios = [ratio for trial in trials for ratio in trial["ratios"][name]]
        slower = (statistics.median(ratios) - 1) * 100
        error = _spread(ratios) * 1.2533 / math.sqrt(len(ratios)) * 100
        bar = NO_BAR
        if name.startswith("watched"):
            bar = at_most(max(slower + error, more / 50), WATCHED_PERCENT, "%")
        cells = (f"{slower:+.2f} ± {error:.2f}", f"{more:+.1f}", f"{threads:.2f}")
        table.rows.append((name, *cells, *bar))
    table.notes.append(
        f"{len(trials)} processes × {len(trials[0]['ratios'][name])} rounds of {BLOCK} steps of "
        "each kind; best step of each block; ± is one standard error."
    )
    return table


def _spread(values: list[float]) -> float:
    """A standard deviation that a few outliers do not change."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def _cell(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.1f} ({max(seconds) * 1e3:,.1f})"


def main() -> None:
    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
