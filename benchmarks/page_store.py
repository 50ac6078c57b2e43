"""A store as large as the page must bear: 10,000 runs, one of them with everything.

    python benchmarks/page_store.py DIRECTORY            # build it; `runwatch head --dir DIRECTORY`
    python benchmarks/page_store.py DIRECTORY --ask      # and how long the page's answers take

The run `big`: a million steps with 50 metrics each over 24 hours in three attempts, checkpoints,
a data loader that is slow for a while, a crash and a hang; 128 nodes of 8 GPUs whose utilisation
is sampled every second, and tensor activity, memory and power every ten.  The others are small.
The same arguments give the same store, moved in time so that it ends a few minutes ago.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    Role,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.duck.engine import DuckStore

SECOND: Final = 10**9
MINUTE: Final = 60 * SECOND
BIG: Final = RunId("big")
GPUS_PER_NODE: Final = 8
UTILISATION: Final = "gpu_utilization_percent"
SLOW_METRICS: Final = (
    ("gpu_tensor_activity_percent", "percent", 55.0, 20.0),
    ("gpu_memory_used_bytes", "bytes", 1.1e11, 1e9),
    ("gpu_power_watts", "watts", 560.0, 60.0),
)
STEP, SAVE, RESTORE, LOADING = 1, 2, 3, 4
SPANS: Final = {
    STEP: "step",
    SAVE: "checkpoint_save",
    RESTORE: "checkpoint_restore",
    LOADING: "data_loading",
}
ROWS: Final = 200_000

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Size:
    runs: int = 10_000
    steps: int = 1_000_000
    metrics: int = 50
    nodes: int = 128
    seconds: int = 86_400


FULL: Final = Size()


@dataclass(slots=True)
class Journal:
    """One process's journal as consecutive batches."""

    name: str
    host: str
    scope: RunScope
    start_ns: int
    role: Role = "process"
    definitions: list[Definition] = field(default_factory=list)
    _at: int = 0

    def batch(self, points: Points | None = None, events: Sequence[Event] = ()) -> Batch:
        origin = Origin(JournalId(self.name), self.host, 100, self.start_ns, "boot", 0, self.role)
        made = Batch(origin, Position(self._at), Position(self._at), [], points or Points())
        if self._at == 0:
            made.definitions += [self.scope, *self.definitions]
        made.events += events
        return made

    def closed(self, batch: Batch) -> Batch:
        """With its end, once everything is in it."""
        batch.end = Position(self._at + 30 * max(batch.records, 1))
        self._at = batch.end
        return batch


def columns(series: Numbers, time_ns: Numbers, step: Numbers, value: Floats) -> Points:
    return Points(
        array("I", series.astype(np.uint32).tobytes()),
        array("q", time_ns.astype(np.int64).tobytes()),
        array("q", step.astype(np.int64).tobytes()),
        array("d", value.astype(np.float64).tobytes()),
    )


# ── the big run ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    first_step: int
    after_step: int
    ends: str


def attempts(size: Size) -> list[Attempt]:
    """The second begins with a thousandth of the steps taken back, and so does the third."""
    third, back = size.steps // 3, max(1, size.steps // 1000)
    starts = [0, third - back, 2 * third - back]
    stops = [third, 2 * third, size.steps]
    ends = ["SIGKILL", "SIGTERM", ""]
    return [Attempt(i + 1, starts[i], stops[i], ends[i]) for i in range(3)]


def training(size: Size, start_ns: int) -> Iterator[list[Batch]]:
    random = np.random.default_rng(1)
    step_ns = size.seconds * SECOND // size.steps * 9 // 10
    names = ["loss", "lr", "step_seconds", "data_wait_seconds"]
    names += [f"layer{i}_grad_norm" for i in range(size.metrics - len(names))]
    clock_ns = start_ns
    for attempt in attempts(size):
        scope = RunScope(1, BIG, "big", 0, size.nodes, f"attempt-{attempt.number}", "large")
        journal = Journal(f"big-{attempt.number}", "node0", scope, clock_ns)
        journal.definitions += [Series(i + 1, name, 1) for i, name in enumerate(names)]
        journal.definitions += [SpanName(number, name, 1) for number, name in SPANS.items()]
        config = {"part": "user", "values": {"max_steps": size.steps, "lr": 3e-4}}
        began = [Event(clock_ns, "run_start", {"argv": ["train.py"]}, scope=1)]
        began.append(Event(clock_ns + 1, "config", config, scope=1))
        clock_ns += 40 * SECOND
        chunk = max(1, ROWS // size.metrics)
        for first in range(attempt.first_step, attempt.after_step, chunk):
            step = np.arange(first, min(first + chunk, attempt.after_step))
            slow = np.where((step > size.steps // 2) & (step < size.steps * 11 // 20), 2.0, 0.9)
            seconds = slow * step_ns / 1e9 * random.uniform(0.98, 1.02, len(step))
            ends = clock_ns + np.cumsum((seconds * 1e9).astype(np.int64))
            batch = journal.batch(training_points(step, ends, seconds, len(names), random), began)
            began = []
            clock_ns = training_spans(batch, step, ends, seconds)
            yield [journal.closed(batch)]
        yield [journal.closed(journal.batch(events=ending(attempt, journal, clock_ns)))]
        clock_ns += 120 * SECOND


def training_points(
    step: Numbers, ends: Numbers, seconds: Floats, metrics: int, random: np.random.Generator
) -> Points:
    values = random.standard_normal((len(step), metrics)) * 0.05 + 1
    values[:, 0] = 10 * np.exp(-step / 2e5) + 0.1 * values[:, 0]
    values[:, 1] = 3e-4
    values[:, 2] = seconds
    values[:, 3] = seconds * 0.05
    return columns(
        np.tile(np.arange(1, metrics + 1), len(step)),
        np.repeat(ends, metrics),
        np.repeat(step, metrics),
        values.ravel(),
    )


def training_spans(batch: Batch, step: Numbers, ends: Numbers, seconds: Floats) -> int:
    """Steps, and a checkpoint after every ten thousandth; when the last of them ended."""
    spans = batch.spans
    begins = ends - (seconds * 0.95e9).astype(np.int64)
    for number, begin, end in zip(step.tolist(), begins.tolist(), ends.tolist(), strict=True):
        spans.append(STEP, number + 1, BEGIN, begin, number)
        spans.append(STEP, number + 1, END, end, number)
    last = int(ends[-1])
    if int(step[-1]) // 10_000 != int(step[0] - 1) // 10_000:
        spans.append(SAVE, 1, BEGIN, last, int(step[-1]))
        last += 20 * SECOND
        spans.append(SAVE, 1, END, last, int(step[-1]))
    return last


def ending(attempt: Attempt, journal: Journal, time_ns: int) -> list[Event]:
    if not attempt.ends:
        return [Event(time_ns, "run_end", {"status": "completed", "explicit": True}, scope=1)]
    signal = {"SIGKILL": 9, "SIGTERM": 15}[attempt.ends]
    body = {"journal": journal.name, "pid": 100, "code": None, "signal": signal, "oom": False}
    return [Event(time_ns, "process_exit", body, scope=1)]


def telemetry(size: Size, start_ns: int) -> Iterator[list[Batch]]:
    """A batch of every node's agent at a time."""
    random = np.random.default_rng(2)
    agents = [agent(node, start_ns) for node in range(size.nodes)]
    chunk = max(10, ROWS // (size.nodes * GPUS_PER_NODE) // 10 * 10)
    level = random.uniform(60, 95, (size.nodes, GPUS_PER_NODE))
    for first in range(0, size.seconds, chunk):
        at = np.arange(first, min(first + chunk, size.seconds))
        # Once an hour the whole cluster idles for two minutes: a checkpoint, a restart.
        busy = np.where(at % 3600 < 120, 0.05, 1.0)
        yield [
            journal.closed(journal.batch(samples(at, busy, level[node], start_ns, random)))
            for node, journal in enumerate(agents)
        ]


def agent(node: int, start_ns: int) -> Journal:
    scope = RunScope(1, BIG, "big", node, 128)
    journal = Journal(f"agent-{node}", f"node{node}", scope, start_ns, "agent")
    units = [(UTILISATION, "percent"), *((name, unit) for name, unit, _, _ in SLOW_METRICS)]
    journal.definitions += [
        Series(
            1 + GPUS_PER_NODE * place + gpu,
            metric,
            1,
            unit,
            f"gpu{gpu}",
            {"uuid": f"GPU-{node:04}-{gpu}", "index": str(gpu), "name": "NVIDIA H200"},
        )
        for place, (metric, unit) in enumerate(units)
        for gpu in range(GPUS_PER_NODE)
    ]
    return journal


def samples(
    at: Numbers, busy: Floats, level: Floats, start_ns: int, random: np.random.Generator
) -> Points:
    gpus = len(level)
    noise = random.integers(-3, 4, (len(at), gpus))
    parts = [
        (
            np.tile(np.arange(1, gpus + 1), len(at)),
            np.repeat(at, gpus),
            np.clip(np.round(level) + noise, 0, 100) * busy[:, None],
        )
    ]
    slow = at[at % 10 == 0]
    for place, (_, _, middle, spread) in enumerate(SLOW_METRICS, 1):
        value = np.round(middle + spread * random.standard_normal((len(slow), gpus)))
        ids = np.tile(np.arange(1 + gpus * place, 1 + gpus * (place + 1)), len(slow))
        parts.append((ids, np.repeat(slow, gpus), value))
    ids, seconds, values = (np.concatenate([np.ravel(p[i]) for p in parts]) for i in range(3))
    order = np.argsort(seconds, kind="stable")
    times = start_ns + seconds[order].astype(np.int64) * SECOND
    return columns(ids[order], times, np.full(len(order), NO_STEP), values[order])


# ── the small ones ─────────────────────────────────────────────────────────────────────────────


def small_runs(size: Size, end_ns: int) -> Iterator[list[Batch]]:
    random = np.random.default_rng(3)
    held: list[Batch] = []
    for number in range(size.runs - 1):
        held.append(small_run(number, end_ns - (number + 2) * 10 * MINUTE, random))
        if len(held) == 200:
            yield held
            held = []
    yield held


def small_run(number: int, start_ns: int, random: np.random.Generator) -> Batch:
    name, group = f"sweep-{number:05}", f"group-{number % 97}"
    scope = RunScope(1, RunId(f"run-{number:05}"), name, group=group)
    journal = Journal(f"small-{number}", f"node{number % 128}", scope, start_ns)
    metrics = ("loss", "lr", "step_seconds", "accuracy")
    journal.definitions += [Series(i + 1, metric, 1) for i, metric in enumerate(metrics)]
    steps = np.arange(20)
    points = columns(
        np.tile(np.arange(1, 5), 20),
        np.repeat(start_ns + (steps + 1) * 10 * SECOND, 4),
        np.repeat(steps * 50, 4),
        random.random(80),
    )
    config = {"max_steps": 1000, "lr": float(random.choice([1e-3, 3e-4])), "seed": number}
    failed = number % 20 == 0
    body = {"status": "failed" if failed else "completed", "explicit": True}
    if failed:
        body["reason"] = "loss is NaN"
    events = [
        Event(start_ns, "run_start", {"argv": ["sweep.py", str(number)]}, scope=1),
        Event(start_ns + 1, "config", {"part": "user", "values": config}, scope=1),
        Event(start_ns + 210 * SECOND, "run_end", body, scope=1),
    ]
    return journal.closed(journal.batch(points, events))


# ── building and asking ────────────────────────────────────────────────────────────────────────


def build(root: Path, size: Size = FULL, *, now_ns: int | None = None) -> int:
    """Into `root/store`; how many points were written."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    start_ns = (now_ns - 5 * MINUTE - size.seconds * SECOND) // MINUTE * MINUTE
    store, written = DuckStore.open(root / "store"), 0
    try:
        for source in (
            small_runs(size, start_ns),
            training(size, start_ns),
            telemetry(size, start_ns),
        ):
            for batches in source:
                store.write(batches)
                written += sum(len(batch.points) for batch in batches)
                store.compact()
        store.compact(force=True)
    finally:
        store.close()
    return written


QUESTIONS: Final = (
    "/runs?limit=100",
    "/runs?limit=1000&metrics=loss",
    "/runs?limit=10000",
    "/runs?search=sweep-0042&limit=100",
    "/runs/big",
    "/runs/big/timeline?pixels=1500",
    "/runs/big/heatmap?metric=gpu_utilization_percent&columns=720&rows=1024",
    "/runs/big/heatmap?metric=gpu_utilization_percent&columns=720&rows=128",
    "/runs/big/heatmap?metric=gpu_power_watts&columns=720&rows=128",
    "/runs/big/curves?metric=loss&buckets=1500",
)


def ask(root: Path, rounds: int) -> None:
    from runwatch.cli.asgi import Exchange
    from runwatch.head.main import LocalHead

    head, loop = LocalHead(root), asyncio.new_event_loop()
    try:
        head.board.warm()  # as a head does when it starts
        with head.accounts.of(BIG):  # a timeline does not wait for it
            pass
        for question in QUESTIONS:
            spent, busy, size = [], [], 0
            for _ in range(rounds + 1):
                began, began_busy = time.perf_counter(), time.process_time()
                answer = Exchange(head.app, loop, f"/api/v1{question}")
                body = b"".join(answer.body())
                spent.append((time.perf_counter() - began) * 1e3)
                busy.append((time.process_time() - began_busy) * 1e3)
                size = len(body)
                if answer.status != 200:
                    sys.exit(f"{question}: {answer.status} {json.loads(body)['error']['message']}")
            p50, cpu = statistics.median(spent[1:]), statistics.median(busy[1:])
            print(
                f"{question:75} {spent[0]:8.1f} ms first {p50:8.1f} ms p50 {cpu:8.1f} ms CPU "
                f"{size / 1e3:9.1f} kB"
            )
        print(f"{'load average, 1 minute':75} {os.getloadavg()[0]:8.1f}")
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        head.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ask", action="store_true", help="measure a store that is there already")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=FULL.runs)
    parser.add_argument("--steps", type=int, default=FULL.steps)
    parser.add_argument("--nodes", type=int, default=FULL.nodes)
    parser.add_argument("--hours", type=float, default=24.0)
    asked: Any = parser.parse_args()
    if asked.ask:
        ask(asked.directory, asked.rounds)
        return
    size = Size(asked.runs, asked.steps, nodes=asked.nodes, seconds=int(asked.hours * 3600))
    began = time.perf_counter()
    written = build(asked.directory, size)
    print(f"{written:,} points in {time.perf_counter() - began:.0f} s at {asked.directory}")


if __name__ == "__main__":
    main()
