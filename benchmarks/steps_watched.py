"""What it costs a training loop to be watched, beside the same loop without any of it.

One process, steps of about 5 ms, in rounds of a fifth of a second that take turns: bare; with the
least that any record of a step can be (the clock read and 16 bytes stored in mapped memory, when
it begins and when it ends); with recorded steps; and watched, which is recorded inside a `diagnose`
block with dumps every ten minutes.  The control socket is served and an agent looks after the
process all the while, so what the process's other threads take is measured apart and added, as if
the loop had to wait for all of it.

A step of NumPy sweeps the processor's caches and lets go of the interpreter lock; one that sorts a
list holds it.  Of each round the median step counts; a round beside its bare neighbour gives one
ratio.
"""

from __future__ import annotations

import json
import math
import mmap
import random
import statistics
import struct
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from loop import numpy_step
from report import NO_BAR, Table, at_most
from trial import TrialFailed, directory, environment, until

BAR_PERCENT = 0.2
ROUND = 40
BARE = "bare"
LEAST = "clock and 16 bytes stored, twice"
WITH, FOR = "with run.step", "for … in run.steps"
WORK = {"numpy": "NumPy", "sort": "a sort that holds the lock"}

Numbers = dict[str, Any]
Notes = list[tuple[int, int]]
"""When each step's work began and ended."""
Kind = Callable[[range, Notes], None]


# ── the process that is watched ───────────────────────────────────────────────────────────────


def work(asked: Numbers) -> None:
    import runwatch

    train = numpy_step() if asked["work"] == "numpy" else _sort_step()
    run = runwatch.init("watched")
    kinds = _kinds(run, train)
    until(lambda: run._control is not None, 30, "the control socket")
    for kind in kinds.values():
        kind(range(3), [])
    rounds = list(_rounds(kinds, asked["rounds"]))
    others = _other_threads(kinds[f"{FOR}, watched"], asked["rounds"] * ROUND)
    run.finish()
    print(json.dumps({"rounds": rounds, "others": others}), flush=True)


def _sort_step() -> Callable[[], object]:
    """About 5 ms in one call that does not let go of the interpreter lock."""
    chance, count = random.Random(1), 1000
    while True:
        step = partial(sorted, [chance.random() for _ in range(count)])
        if min(timeit.repeat(step, number=1, repeat=10)) > 0.0046:
            return step
        count += count // 8


def _kinds(run: Any, train: Callable[[], object]) -> dict[str, Kind]:
    clock = time.perf_counter_ns

    def bare(numbers: range, note: Notes) -> None:
        for _ in numbers:
            first = clock()
            train()
            note.append((first, clock()))

    place = mmap.mmap(-1, 1 << 16)
    put, now = struct.Struct("<qq").pack_into, time.time_ns

    def least(numbers: range, note: Notes) -> None:
        for number in numbers:
            put(place, number * 32 % 65536, number, now())
            first = clock()
            train()
            note.append((first, clock()))
            put(place, number * 32 % 65536 + 16, number, now())

    def with_step(numbers: range, note: Notes) -> None:
        for number in numbers:
            with run.step(number):
                first = clock()
                train()
                note.append((first, clock()))

    def for_steps(numbers: range, note: Notes) -> None:
        for _ in run.steps(numbers, start=numbers.start):
            first = clock()
            train()
            note.append((first, clock()))

    return {
        BARE: bare,
        LEAST: least,
        f"{WITH}, recorded": with_step,
        f"{WITH}, watched": _watched(with_step),
        f"{FOR}, recorded": for_steps,
        f"{FOR}, watched": _watched(for_steps),
    }


def _watched(kind: Kind) -> Kind:
    import runwatch

    def watched(numbers: range, note: Notes) -> None:
        with runwatch.diagnose(interval_seconds=600, to_file=True):
            kind(numbers, note)

    return watched


def _rounds(kinds: dict[str, Kind], rounds: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Of each kind the median step and the median time between the work of two steps, in ns."""
    names = list(kinds)
    for number in range(rounds):
        first = number * ROUND
        found = {}
        turn = number % len(names)  # a drift hits all of them
        for name in names[turn:] + names[:turn]:
            note: Notes = []
            kinds[name](range(first, first + ROUND), note)
            # The first steps of a round find things as the kind before has left them.
            steps = list(zip(note[2:], note[3:], strict=False))
            whole = statistics.median(after[0] - before[0] for before, after in steps)
            between = statistics.median(after[0] - before[1] for before, after in steps)
            found[name] = (whole, between)
        yield found


def _other_threads(kind: Kind, steps: int) -> float:
    """Their share of a core while the loop runs for a while without a break."""
    cpu, mine, wall = time.process_time(), time.thread_time(), time.perf_counter()
    kind(range(steps), [])
    spent = (time.process_time() - cpu) - (time.thread_time() - mine)
    return spent / (time.perf_counter() - wall)


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def trial(script: str, rounds: int, work: str) -> Numbers:
    """One process; `script` hands its `--worker` on to `work`."""
    from runwatch.agent.lock import end_agents

    with directory() as place:
        asked = json.dumps({"kind": "watched", "rounds": rounds, "work": work})
        command = [sys.executable, script, "--worker", asked]
        more = {"RUNWATCH_AGENT": "on", "RUNWATCH_STACKS_DIR": str(place / "debugging")}
        variables = environment(place) | more
        try:
            done = subprocess.run(
                command, env=variables, stdout=subprocess.PIPE, text=True, timeout=600, check=False
            )
        finally:
            end_agents(place)
    if done.returncode:
        raise TrialFailed(f"the watched loop ended with {done.returncode}")
    found: Numbers = json.loads(done.stdout.splitlines()[-1])
    return found


def table(trials: list[Numbers], work: str) -> Table:
    rounds = [each for one in trials for each in one["rounds"]]
    threads = statistics.median(one["others"] for one in trials) * 100
    step = statistics.median(each[BARE][0] for each in rounds)
    made = Table(
        f"A loop of {step / 1e6:.1f} ms steps that is watched; each step is {WORK[work]}",
        ("loop", "slower than bare by %", "calls, µs a step", "total %", "bar", ""),
    )
    for name in rounds[0]:
        if name != BARE:
            made.rows.append(_row(name, rounds, step, threads))
    made.notes += [_watch_alone(form, rounds, step) for form in (WITH, FOR)]
    made.notes.append(
        f"Total: what the calls take of a step, and the {threads:.3f} % of a core that the "
        "process's other threads take."
    )
    made.notes.append(
        f"{len(trials)} processes, {len(rounds)} rounds of {ROUND} steps of each kind; ± is one "
        "standard error."
    )
    return made


def _row(name: str, rounds: list[Numbers], step: float, threads: float) -> tuple[str, ...]:
    slower, error = _middle([each[name][0] / each[BARE][0] - 1 for each in rounds])
    calls, _ = _middle([each[name][1] - each[BARE][1] for each in rounds])
    watched = name.endswith("watched")
    total = calls / step * 100 + (0 if name == LEAST else threads)
    bar = _verdict(total, slower * 100, error * 100, threads) if watched else NO_BAR
    cells = (f"{slower * 100:+.2f} ± {error * 100:.2f}", f"{calls / 1e3:.1f}", f"{total:.2f}")
    return (name, *cells, *bar)


def _verdict(total: float, slower: float, error: float, threads: float) -> tuple[str, str]:
    """By the total; the rounds must not say otherwise."""
    bar, word = at_most(max(total, slower - 2 * error + threads), BAR_PERCENT, "%")
    unsure = word == "pass" and slower + error + threads > BAR_PERCENT
    return bar, "pass, within the noise" if unsure else word


def _watch_alone(form: str, rounds: list[Numbers], step: float) -> str:
    watched, recorded = f"{form}, watched", f"{form}, recorded"
    more, error = _middle([each[watched][1] - each[recorded][1] for each in rounds])
    return (
        f"The watch alone, beside recorded steps (`{form}`): {more / 1e3:+.2f} ± {error / 1e3:.2f} "
        f"µs a step, {more / step * 100:+.3f} %."
    )


def _middle(values: list[float]) -> tuple[float, float]:
    """Their median and its standard error, by a deviation that a few outliers do not change."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return middle, 1.2533 * deviation / math.sqrt(len(values))
