"""Builders for batches, and the plain-Python reduction that curves are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runwatch.record import (
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
)
from runwatch.rows import Curve

SECOND = 10**9
DAY = 86_400 * SECOND
EPOCH = 20_000 * DAY  # a midnight in 2024

Point = tuple[int, int, int | None, float]
"""Local series, time, step, value."""


def origin(name: str = "journal-a", *, host: str = "host-a", pid: int = 100) -> Origin:
    return Origin(JournalId(name), host, pid, EPOCH)


def definitions(
    run: str = "run-a", *, series: int = 3, rank: int = 0, metric: str = "metric"
) -> list[Definition]:
    """One scope, `series` series numbered from 1 on device '1', '2' …, one span name."""
    found: list[Definition] = [RunScope(1, RunId(run), f"name of {run}", rank=rank, world_size=4)]
    found += [Series(i, metric, scope=1, unit="u", device=str(i)) for i in range(1, series + 1)]
    found.append(SpanName(1, "checkpoint_save", scope=1))
    return found


def points(rows: Iterable[Point]) -> Points:
    made = Points()
    for series, time_ns, step, value in rows:
        made.append(series, time_ns, NO_STEP if step is None else step, value)
    return made


def spans(rows: Iterable[tuple[int, int, int, int, int | None]]) -> Spans:
    made = Spans()
    for name, span, edge, time_ns, step in rows:
        made.append(name, span, edge, time_ns, NO_STEP if step is None else step)
    return made


@dataclass
class Writer:
    """A journal's side: hands out consecutive batches.  A record is 10 bytes long here."""

    origin: Origin = field(default_factory=origin)
    definitions: Sequence[Definition] = field(default_factory=definitions)
    at: int = 0

    def batch(
        self,
        rows: Iterable[Point] = (),
        *,
        events: Sequence[Event] = (),
        edges: Iterable[tuple[int, int, int, int, int | None]] = (),
        skipped: int = 0,
    ) -> Batch:
        made = Batch(
            self.origin,
            Position(self.at),
            Position(self.at),
            list(self.definitions),
            points(rows),
            spans(edges),
            list(events),
            skipped,
        )
        made.end = Position(self.at + 10 * max(made.records + skipped, 1))
        self.at = made.end
        return made


def ramp(count: int, *, series: int = 1, start: int = EPOCH, first: int = 0) -> list[Point]:
    """One point a second with step and value equal to its index."""
    indices = range(first, first + count)
    return [(series, start + i * SECOND, i, float(i)) for i in indices]


def reduced(
    rows: Sequence[tuple[int, int | None, float]], axis: str, start: int, end: int, width: int
) -> dict[int, tuple[object, ...]]:
    """What a curve must say: bucket start -> its row, from (time, step, value) of one series."""
    buckets: dict[int, list[tuple[int, float]]] = {}
    for time_ns, step, value in sorted(rows, key=lambda row: row[0]):
        at = time_ns if axis == "time" else step
        if at is not None and start <= at < end:
            place = start + (at - start) // width * width
            buckets.setdefault(place, []).append((time_ns, value))
    return {place: _row(found) for place, found in buckets.items()}


def _row(found: list[tuple[int, float]]) -> tuple[object, ...]:
    values = [value for _, value in found]
    finite = [value for value in values if math.isfinite(value)]
    return (
        repr(values[0]),
        repr(values[-1]),
        min(finite) if finite else None,
        max(finite) if finite else None,
        round(math.fsum(finite) / len(finite), 6) if finite else None,
        len(finite),
        len(values) - len(finite),
        found[-1][0],
    )


def as_rows(curve: Curve) -> dict[int, tuple[object, ...]]:
    columns = zip(
        curve.first,
        curve.last,
        curve.minimum,
        curve.maximum,
        curve.mean,
        curve.count,
        curve.nonfinite,
        curve.time_ns,
        strict=True,
    )
    return {
        place: (
            repr(first),
            repr(last),
            low,
            high,
            None if mean is None else round(mean, 6),
            *rest,
        )
        for place, (first, last, low, high, mean, *rest) in zip(
            curve.position, columns, strict=True
        )
    }
