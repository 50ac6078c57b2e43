"""How much slower a training loop gets that does not know us, by the hooks that see its steps.

    python benchmarks/hooked.py [--quick]

A PyTorch loop of steps of about 5 ms: a batch from a data loader, a matrix product, an optimizer
that steps.  In one process with a run, blocks of ten steps alternate between bare and hooked; the
first steps of each block are not counted.  The estimator is that of `loop.py`: each pair of
neighbouring blocks gives one ratio of their best steps.  Beside it: what the calls that hooks sit
in take more: the lower tenth of all hooked steps less that of all bare ones.  These calls find
their code and data out of the caches, so whatever else uses the machine's memory slows all of them;
medians of such steps tell more of the neighbours than of us.  What is told only now and then (short
waits of several steps, together) is not in it.  The last case has no hooks in either kind of block:
it shows noise.  Times are CPU times of the thread, which stays on one processor.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from loop import BAR_PERCENT, BLOCK
from report import NO_BAR, Outcome, Table, at_most
from trial import Options, TrialFailed, answer, directory, read_answer, worker

WARM = 5
CASES = {
    "loader and optimizer": (1, True),
    "gradients of four batches": (4, True),
    "optimizer alone": (1, False),
    "bare against bare": (1, True),
}
NOISE = "bare against bare"


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    place = Path(request["directory"])
    batches, by_loader = CASES[request["case"]]
    program = Program(batches, by_loader)
    answer(place, compare(program, request["pairs"], hooked=request["case"] != NOISE))


class Program:
    """The loop.  It notes for each step how long it took, and how long the hooked calls took."""

    def __init__(self, batches: int, by_loader: bool) -> None:
        torch = import_module("torch")
        torch.set_num_threads(1)
        self._batches = batches
        weight = torch.nn.Parameter(torch.zeros(16))
        weight.grad = torch.zeros(16)
        self._update = torch.optim.SGD([weight], lr=0.1)
        numbers = torch.utils.data.TensorDataset(torch.zeros(4096, 1))
        loader = torch.utils.data.DataLoader(numbers, batch_size=1)
        self._items: Callable[[], Iterator[Any]] = lambda: iter(loader if by_loader else [0] * 4096)
        self._product = self._about_5_ms(torch)

    def _about_5_ms(self, torch: Any) -> Callable[[], object]:
        size = 128
        while True:
            one, other = torch.ones(size, size), torch.empty(size, size)
            took = []
            for _ in range(20):
                begin = time.perf_counter()
                torch.mm(one, one, out=other)
                took.append(time.perf_counter() - begin)
            if min(took) * self._batches > 0.0046:
                return lambda: torch.mm(one, one, out=other)
            size += 16

    def block(self) -> list[tuple[int, int]]:
        clock, items, update = time.thread_time_ns, self._items(), self._update.step
        notes = []
        for _ in range(WARM + BLOCK):
            start, inside = clock(), 0
            for _ in range(self._batches):
                before = clock()
                next(items)
                inside += clock() - before
                self._product()
            before = clock()
            update()
            end = clock()
            notes.append((end - start, inside + end - before))
        return notes[WARM:]


class Switch:
    """Sets and removes the hooks of a run that goes on: its begin is another matter."""

    def __init__(self) -> None:
        import runwatch

        self._hooks: Any = runwatch.init("hooked", auto=True)._hooks
        self._all = set(self._hooks._table)

    def off(self) -> None:
        tell = self._hooks._tell
        for undo in tell.at_the_end:
            undo()
        for functions in (tell.at_the_end, tell.every_second, tell.when_run_ends):
            functions.clear()
        tell.done.clear()
        self._hooks._seen = set(self._all)  # so that nobody sets them meanwhile

    def on(self) -> None:
        self._hooks._seen.clear()
        self._hooks.look()


def compare(program: Program, pairs: int, *, hooked: bool) -> dict[str, float]:
    switch = Switch()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    program.block()
    ratios, steps = [], []
    calls: dict[bool, list[int]] = {True: [], False: []}
    for pair in range(pairs):
        notes = {}
        # Which comes first changes, so that a drift of the machine cancels.
        for with_hooks in (pair % 2 == 0, pair % 2 == 1):
            switch.off()
            if with_hooks and hooked:
                switch.on()
            notes[with_hooks] = program.block()
        best = {kind: min(total for total, _ in note) for kind, note in notes.items()}
        ratios.append(best[True] / best[False])
        for kind, note in notes.items():
            calls[kind] += [inside for _, inside in note]
        steps += [total for total, _ in notes[False]]
    switch.off()
    more = lower_tenth(calls[True]) - lower_tenth(calls[False])
    return {
        "ratio": statistics.median(ratios),
        "error": 1.2533 * statistics.stdev(ratios) / math.sqrt(len(ratios)),
        "calls_us": more / 1e3,
        "calls_share": more / statistics.median(steps),
        "step_ms": statistics.median(steps) / 1e6,
    }


def lower_tenth(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 10]


# ── in the benchmark ──────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    pairs, rounds = (15, 1) if options.quick else (40, 3)
    numbers: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name in CASES:
            numbers[name].append(trial(name, pairs))
    return Outcome([table(numbers)], {"hooked": numbers})


def trial(name: str, pairs: int) -> dict[str, float]:
    with directory() as place:
        request = {"case": name, "directory": str(place), "pairs": pairs}
        with worker("hooked.py", sys.executable, request, place) as process:
            try:
                process.wait(300)
            except subprocess.TimeoutExpired as error:
                raise TrialFailed(f"hooked.py for {name} took more than 300 s") from error
        return read_answer(place, f"hooked.py for {name}")


def table(numbers: dict[str, list[dict[str, float]]]) -> Table:
    head = ("PyTorch loop of 5 ms steps", "slower by %", "hooked calls, µs more (% of a step)")
    made = Table("Slow-down of a loop that does not know us", (*head, "bar", ""))
    for name, rounds in numbers.items():
        found = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        slower, error = (found["ratio"] - 1) * 100, found["error"] * 100 / math.sqrt(len(rounds))
        share = found["calls_share"] * 100
        bar = at_most(max(slower - error, share), BAR_PERCENT, "%") if name != NOISE else NO_BAR
        calls = f"{found['calls_us']:.1f} ({share:.2f})"
        made.rows.append((name, f"{slower:+.2f} ± {error:.2f}", calls, *bar))
    return made


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, work, measure)


if __name__ == "__main__":
    main()
