"""A store with one run that has very much of everything, quick to make."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from tests.fuzz.hostile import BODIES

FAT: Final = "fat"
SECOND: Final = 10**9
BEGUN: Final = 1_700_000_000 * SECOND
OTHER_SERIES: Final = 20
"""Of each of the other runs."""
LARGE: Final = (*["config"] * 9, "incident")
LARGE_BYTES: Final = 500_000
ROWS: Final = 100_000
"""In a batch."""


class Size(NamedTuple):
    """How much of each."""

    ranks: int = 4
    points: int = 1_000_000
    steps: int = 200_000
    series: int = 2_000
    logs: int = 50_000
    of_each_kind: int = 500
    """Events of every kind that we know."""
    large: int = 0
    """Events of some kinds that are as large as they may be, of one more rank."""
    runs: int = 0
    """Others, with next to nothing in them."""


def fatten(store: Store, size: Size) -> None:
    for rank in range(size.ranks):
        _Process(store, f"{FAT}-{rank}", FAT, rank, size.ranks).live(size)
    others = [_Process(store, f"other-{n}", f"other-{n}", 0, 1) for n in range(size.runs)]
    for first in range(0, len(others), 1000):
        batches = [other.passing_by() for other in others[first : first + 1000]]
        assert all(verdict.accepted for verdict in store.write(batches))


def fat_store(directory: Path, size: Size) -> None:
    store = DuckStore.open(directory)
    try:
        fatten(store, size)
        store.compact(force=True)
        loud = _Process(store, f"{FAT}-loud", FAT, size.ranks, size.ranks + 1)
        loud.shout(size.large)
    finally:
        store.close()


class _Process:
    """One rank: its journal, written batch by batch."""

    def __init__(self, store: Store, journal: str, run: str, rank: int, world_size: int) -> None:
        self._store = store
        self._run = run
        self._origin = Origin(JournalId(journal), f"node-{rank}", 100 + rank, BEGUN, "boot", 7)
        self._scope = RunScope(1, RunId(run), run, rank=rank, world_size=world_size)
        self._at = 0

    def live(self, size: Size) -> None:
        series = (f"series-{i}" for i in range(size.series // size.ranks))
        self._write(self._begun("loss", *series))
        self._steps(size.steps // size.ranks)
        self._points(size.points // size.ranks)
        logged = ({"name": f"note-{i % 50}", "value": "x" * 200} for i in range(size.logs))
        self._events("log", logged, size.logs // size.ranks)
        for kind, body in BODIES.items():
            if kind not in ("run_start", "run_end", "process_exit", "fork", "log"):
                count = size.of_each_kind // size.ranks
                self._events(kind, (_numbered(body, i) for i in range(count)), count)

    def shout(self, count: int) -> None:
        for number in range(count):
            kind = LARGE[number % len(LARGE)]
            body = {**BODIES[kind], "values": {f"key-{number}": "x" * LARGE_BYTES}}
            self._events(kind, [_numbered(body, number)], 1, number)

    def passing_by(self) -> Batch:
        batch = self._begun(*(f"other-{number}" for number in range(OTHER_SERIES)))
        batch.end = Position(10 * batch.records)
        return batch

    def _begun(self, *metrics: str) -> Batch:
        batch = self._batch()
        named: list[Definition] = [Series(i + 2, name, 1) for i, name in enumerate(metrics)]
        batch.definitions = [self._scope, SpanName(1, "step", 1), *named]
        for number in range(len(metrics)):
            batch.points.append(number + 2, BEGUN + number, number, 0.5)
        started = {"run": self._run, "name": self._run, "argv": ["train.py"]}
        batch.events = [Event(BEGUN, "run_start", started, scope=1)]
        return batch

    def _steps(self, count: int) -> None:
        for first in range(0, count, ROWS):
            step = np.arange(first, min(first + ROWS, count), dtype=np.int64).repeat(2)
            is_end = np.arange(len(step), dtype=np.int64) % 2
            batch = self._batch()
            spans = batch.spans
            spans.name = _column("I", np.ones(len(step), np.uint32))
            spans.span = _column("I", step.astype(np.uint32) + 1)
            spans.edge = _column("B", np.where(is_end, END, BEGIN).astype(np.uint8))
            spans.time_ns = _column("q", BEGUN + step * SECOND + is_end * (SECOND * 9 // 10))
            spans.step = _column("q", step)
            self._write(batch)

    def _points(self, count: int) -> None:
        for first in range(0, count, ROWS):
            step = np.arange(first, min(first + ROWS, count), dtype=np.int64)
            batch = self._batch()
            batch.points.series = _column("I", np.full(len(step), 2, np.uint32))
            batch.points.time_ns = _column("q", BEGUN + 5 + step * SECOND // 10)
            batch.points.step = _column("q", step)
            batch.points.value = _column("d", 1 / (step + 1.0))
            self._write(batch)

    def _events(self, kind: str, bodies: Iterable[Any], count: int, first: int = 0) -> None:
        batch = self._batch()
        batch.definitions = [self._scope]
        for number, body in zip(range(count), bodies, strict=False):
            batch.events.append(
                Event(BEGUN + (first + number) * SECOND, kind, body, step=NO_STEP, scope=1)
            )
        self._write(batch)

    def _batch(self) -> Batch:
        return Batch(self._origin, Position(self._at), Position(self._at))

    def _write(self, batch: Batch) -> None:
        batch.end = Position(self._at + 10 * max(batch.records, 1))
        (verdict,) = self._store.write([batch])
        assert verdict.accepted
        self._at = batch.end


def _numbered(body: Any, number: int) -> Any:
    """Another of the same: sessions, incidents and the like are told apart by their names."""
    names = {"session": "s", "id": "i", "command": "c", "incident": "i"}
    return {**body, **{key: f"{mark}{number}" for key, mark in names.items() if key in body}}


def _column(code: str, values: Any) -> array[Any]:
    made: array[Any] = array(code)
    made.frombytes(values.tobytes())
    return made
