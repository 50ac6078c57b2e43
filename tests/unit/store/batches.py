"""The plain-Python reduction that curves are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runwatch.rows import Curve
from runwatch.testing import SECOND

DAY = 86_400 * SECOND


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
