"""Draws all series of a metric as one band, bucket by bucket; and pairs the edges of spans."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from runwatch.buckets import Grid
from runwatch.record import BEGIN
from runwatch.rows import Curve, SeriesRow, SpanRow

About = Literal["run", "process", "device", "host"]
"""What the numbers describe: what the program logged, or what was measured of the process, its
devices or its host."""
Floats = npt.NDArray[np.float64]
_DIGITS: Final = 7


class Band(NamedTuple):
    """A bucket without a point holds None."""

    minimum: list[float | None]
    maximum: list[float | None]
    mean: list[float | None]


class SpanPair(NamedTuple):
    row: SpanRow
    start_ns: int
    end_ns: int | None


def about(row: SeriesRow) -> About:
    if row.metric.startswith("host_"):
        return "host"
    if row.device:
        return "device"
    return "process" if row.metric.startswith("process_") else "run"


def band_of(curves: Iterable[Curve], buckets: Grid) -> Band:
    low, high, total, count = (np.zeros(buckets.buckets) for _ in range(4))
    low += np.inf
    high -= np.inf
    for curve in curves:
        at = (np.asarray(curve.position, np.int64) - buckets.start) // buckets.width
        points = np.asarray(curve.count, np.float64)
        some = points > 0
        at, points = at[some], points[some]
        np.minimum.at(low, at, _floats(curve.minimum)[some])
        np.maximum.at(high, at, _floats(curve.maximum)[some])
        total[at] += _floats(curve.mean)[some] * points
        count[at] += points
    absent = count == 0
    mean = total / np.maximum(count, 1)
    return Band(_listed(low, absent), _listed(high, absent), _listed(mean, absent))


def _floats(values: Sequence[float | None]) -> Floats:
    if isinstance(values, array):
        return np.frombuffer(values, np.float64)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _listed(values: Floats, absent: npt.NDArray[np.bool_]) -> list[float | None]:
    """Seven digits are all that a chart can show; rounding halves the answer."""
    sizes = np.abs(np.where(absent | (values == 0), 1.0, values))
    places = _DIGITS - 1 - np.floor(np.log10(sizes))
    scale = 10.0 ** np.clip(places, -300, 300)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.where(places > 300, values, np.round(values * scale) / scale)
    rounded = np.where(np.isfinite(rounded), rounded, values)
    return [
        None if gone else value
        for value, gone in zip(rounded.tolist(), absent.tolist(), strict=True)
    ]


def paired(edges: Iterable[SpanRow], start_ns: int | None) -> list[SpanPair]:
    """Pairs begins with ends.  A span whose begin is missing began before the window."""
    begun: dict[tuple[str, str, int], SpanRow] = {}
    pairs: list[SpanPair] = []
    for edge in edges:
        key = edge.journal, edge.name, edge.span
        if edge.edge == BEGIN:
            begun[key] = edge
        elif (begin := begun.pop(key, None)) is not None:
            pairs.append(SpanPair(begin, begin.time_ns, edge.time_ns))
        elif start_ns is not None:
            pairs.append(SpanPair(edge, start_ns, edge.time_ns))
    pairs += [SpanPair(begin, begin.time_ns, None) for begin in begun.values()]
    return sorted(pairs, key=lambda pair: (pair.start_ns, pair.row.rank))
