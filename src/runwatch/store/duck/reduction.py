"""Points to curves, in numpy: each bucket is reduced from a stretch of sorted rows.

Blocks are sorted by (series, time), so a bucket's rows lie side by side and `reduceat` folds them
at memory speed.  Rows that do not lie so (hot ones, several blocks, a step that goes back) give
several cells for one bucket; only those cells are sorted and folded once more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runwatch.buckets import Axis, Grid
from runwatch.rows import Curve
from runwatch.store.duck.latest import Floats
from runwatch.store.entries import Integers

Columns = dict[str, npt.NDArray[Any]]


class Cells(NamedTuple):
    """Columns; each row summarises some points of one series in one bucket."""

    cell: Integers
    """Series and bucket in one number: the series' rank × buckets + the bucket."""
    first_ns: Integers
    last_ns: Integers
    first: Floats
    last: Floats
    minimum: Floats
    """Of the finite values; if there are none, +inf here, -inf in `maximum`, 0 in `total`."""
    maximum: Floats
    total: Floats
    finite: Integers
    nonfinite: Integers


def cells_of_points(
    points: Columns, ids: Integers, grid: Grid, *, rows: int = 1 << 18
) -> Iterator[Cells]:
    """From columns `series`, `place`, `time_ns` and `value`.

    Works on `rows` rows at a time, so that they stay in the processor's cache.
    """
    at, end = 0, len(points["value"])
    while at < end:
        columns = {name: column[at : at + rows] for name, column in points.items()}
        cells, starts = _cells(columns, ids, grid)
        if at + rows >= end or len(starts) == 1:
            yield cells
            at += rows
        else:  # the last cell may continue in the next slice, where it is complete
            yield Cells._make(column[:-1] for column in cells)
            at += int(starts[-1])


def _cells(columns: Columns, ids: Integers, grid: Grid) -> tuple[Cells, Integers]:
    series, time_ns, value = columns["series"], columns["time_ns"], columns["value"]
    bucket = _buckets(columns["place"], grid)
    edge = np.ones(len(value), bool)
    np.not_equal(bucket[1:], bucket[:-1], out=edge[1:])
    edge[1:] |= series[1:] != series[:-1]
    edge[1:] |= time_ns[1:] < time_ns[:-1]
    starts = np.flatnonzero(edge)
    ends = np.append(starts[1:], len(value)) - 1
    cells = Cells(
        _ranks(series[starts], ids) * grid.buckets + bucket[starts].view(np.int64),
        time_ns[starts],
        time_ns[ends],
        value[starts],
        value[ends],
        *_folded(value, starts),
    )
    return cells, starts


def cells_of_rollup(rollup: Columns, ids: Integers, grid: Grid) -> Iterator[Cells]:
    """From rows of a roll-up, each of which lies within one bucket."""
    if not len(rollup["series"]):
        return
    bucket = _buckets(rollup["first_ns"], grid).view(np.int64)
    cell = _ranks(rollup["series"], ids) * grid.buckets + bucket
    yield Cells(cell, *(rollup[name] for name in Cells._fields[1:]))


def curves(parts: Sequence[Cells], ids: Integers, axis: Axis, grid: Grid) -> list[Curve]:
    """Cells of any parts, in any order, as one curve per series that has some."""
    if not parts:
        return []
    cells = _merged(Cells._make(map(np.concatenate, zip(*parts, strict=True))))
    rank, bucket = np.divmod(cells.cell, grid.buckets)
    starts = _starts(rank)
    table = _Table(cells, _positions(bucket, grid), starts)
    edges = pairwise([*starts.tolist(), len(rank)])
    series = ids[rank[starts]].tolist()
    return [table.curve(i, series[i], axis, grid.width, a, b) for i, (a, b) in enumerate(edges)]


def _buckets(place: Integers, grid: Grid) -> npt.NDArray[np.uint64]:
    # Unsigned with wrap-around: correct even if the range is wider than an int64.
    bucket: npt.NDArray[np.uint64] = place.view(np.uint64) - np.uint64(grid.start % 2**64)
    bucket //= np.uint64(min(grid.width, 2**64 - 1))
    return bucket


def _positions(bucket: Integers, grid: Grid) -> Integers:
    offset = bucket.view(np.uint64) * np.uint64(grid.width % 2**64)
    position: npt.NDArray[np.uint64] = offset + np.uint64(grid.start % 2**64)
    return position.view(np.int64)


def _ranks(series: Integers, ids: Integers) -> Integers:
    low, high = int(ids[0]), int(ids[-1])
    if high - low == len(ids) - 1:
        return series - low
    ranks: Integers = np.searchsorted(ids, series)
    return ranks


def _starts(column: Integers) -> Integers:
    return np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]]))


def _folded(value: Floats, starts: Integers) -> tuple[Floats, Floats, Floats, Integers, Integers]:
    """Minimum, maximum and total of the finite values; the counts of finite and other values."""
    rows = np.diff(starts, append=len(value))
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(value, starts)
    if np.isfinite(total).all():  # then every value is finite
        minimum = np.minimum.reduceat(value, starts)
        return minimum, np.maximum.reduceat(value, starts), total, rows, np.zeros_like(rows)
    finite = np.isfinite(value)
    count = np.add.reduceat(finite, starts, dtype=np.int64)
    with np.errstate(over="ignore"):
        total = np.add.reduceat(np.where(finite, value, 0.0), starts)
    return (
        np.minimum.reduceat(np.where(finite, value, np.inf), starts),
        np.maximum.reduceat(np.where(finite, value, -np.inf), starts),
        total,
        count,
        rows - count,
    )


def _merged(cells: Cells) -> Cells:
    """One row per cell, in order."""
    ahead = np.diff(cells.cell)
    if (ahead > 0).all():
        return cells
    if (ahead < 0).any() or (np.diff(cells.first_ns)[ahead == 0] < 0).any():
        # Two stable sorts of nearly sorted data: close to linear.
        order = np.lexsort((cells.first_ns, cells.cell))
        cells = Cells._make(column[order] for column in cells)
    starts = _starts(cells.cell)
    last_ns = np.maximum.reduceat(cells.last_ns, starts)
    with np.errstate(over="ignore"):
        total = np.add.reduceat(cells.total, starts)
    return Cells(
        cells.cell[starts],
        cells.first_ns[starts],
        last_ns,
        cells.first[starts],
        _last(cells, starts, last_ns),
        np.minimum.reduceat(cells.minimum, starts),
        np.maximum.reduceat(cells.maximum, starts),
        total,
        np.add.reduceat(cells.finite, starts),
        np.add.reduceat(cells.nonfinite, starts),
    )


def _last(cells: Cells, starts: Integers, last_ns: Integers) -> Floats:
    """The newest value, which need not be in the cell that began last."""
    owner = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells.cell)))
    newest = np.flatnonzero(cells.last_ns == last_ns[owner])
    last = np.empty(len(starts))
    last[owner[newest]] = cells.last[newest]
    return last


class _Table:
    """All curves below one another; cut into arrays, not lists.

    A heat map of 1,000 series has 3 million numbers.  A Python object for each would cost more than
    the query.
    """

    def __init__(self, cells: Cells, position: Integers, starts: Integers) -> None:
        self._finite = cells.finite
        self._gaps = np.logical_or.reduceat(cells.finite == 0, starts).tolist()
        """Whether a curve has a bucket without a finite value."""
        columns = {**cells._asdict(), "position": position}
        columns["mean"] = cells.total / np.maximum(cells.finite, 1)
        self._bytes = {name: column.tobytes() for name, column in columns.items()}

    def curve(self, index: int, series: int, axis: Axis, width: int, a: int, b: int) -> Curve:
        optional = self._optional if self._gaps[index] else self._floats
        return Curve(
            series,
            axis,
            self._integers("position", a, b),
            width,
            self._floats("first", a, b),
            self._floats("last", a, b),
            optional("minimum", a, b),
            optional("maximum", a, b),
            optional("mean", a, b),
            self._integers("finite", a, b),
            self._integers("nonfinite", a, b),
            self._integers("last_ns", a, b),
        )

    def _integers(self, name: str, a: int, b: int) -> Sequence[int]:
        return array("q", self._bytes[name][8 * a : 8 * b])

    def _floats(self, name: str, a: int, b: int) -> Sequence[float]:
        return array("d", self._bytes[name][8 * a : 8 * b])

    def _optional(self, name: str, a: int, b: int) -> Sequence[float | None]:
        values = self._floats(name, a, b)
        finite = self._finite[a:b].tolist()
        return [value if count else None for value, count in zip(values, finite, strict=True)]
