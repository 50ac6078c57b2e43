"""The questions, as SQL over hot tables and closed files alike."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from runwatch.errors import UsageError
from runwatch.record import Curve
from runwatch.store.blocks import Block, BlockFiles, Kind
from runwatch.store.grid import HIGHEST, LOWEST, Grid
from runwatch.store.hot import Connection
from runwatch.store.store import Axis, PointColumns

_MANY_RANGES: Final = 16

# One row of a roll-up is a cell: what is left of a stretch of points.  A point is a cell of one.
_CELL = "series, {at} AS place, first, last, minimum, maximum, total, finite, nonfinite, last_ns"
_POINT_AS_CELL = """series, {at} AS place, value AS first, value AS last, finite_value AS minimum,
    finite_value AS maximum, finite_value AS total, (finite_value IS NOT NULL)::BIGINT AS finite,
    (finite_value IS NULL)::BIGINT AS nonfinite, time_ns AS last_ns"""
_POINTS = """(SELECT series, time_ns, step, value,
    CASE WHEN isfinite(value) THEN value END AS finite_value FROM ({source}))"""

_REDUCE_POINTS = """SELECT {cell} AS cell,
    arg_min(value, time_ns) AS first, arg_max(value, time_ns) AS last,
    coalesce(min(finite_value), 'nan'::DOUBLE) AS minimum,
    coalesce(max(finite_value), 'nan'::DOUBLE) AS maximum,
    coalesce(sum(finite_value), 0) AS total, count(finite_value) AS finite,
    count(*) - count(finite_value) AS nonfinite, max(time_ns) AS last_ns
    FROM {points} GROUP BY ALL"""
_REDUCE_CELLS = """SELECT {cell} AS cell,
    arg_min(first, place) AS first, arg_max(last, last_ns) AS last,
    coalesce(min(minimum), 'nan'::DOUBLE) AS minimum,
    coalesce(max(maximum), 'nan'::DOUBLE) AS maximum,
    coalesce(sum(total), 0) AS total, sum(finite)::BIGINT AS finite,
    sum(nonfinite)::BIGINT AS nonfinite, max(last_ns) AS last_ns
    FROM ({cells}) GROUP BY ALL"""

_REDUCED: Final = (
    *("first", "last", "minimum", "maximum", "total"),
    *("finite", "nonfinite", "last_ns"),
)

POINT_COLUMNS: Final = "series, time_ns, step, value"
SPAN_COLUMNS: Final = "run, journal, name, span, edge, time_ns, step, place"
EVENT_COLUMNS: Final = "run, journal, scope, time_ns, step, kind, body, place"


@dataclass(frozen=True, slots=True)
class View:
    """What exists for a reader that begins now."""

    generations: tuple[int, ...]
    blocks: tuple[Block, ...]

    def hot(self, kind: Kind) -> list[str]:
        return [f"{kind}_{generation}" for generation in self.generations]

    def closed(self, kind: Kind) -> list[Block]:
        return [block for block in self.blocks if block.kind == kind]

    def parts(self, prefer: Kind) -> list[Block]:
        """One block of points per part: the preferred kind, or the other when that is gone."""
        chosen: dict[int, Block] = {}
        for block in self.blocks:
            if block.kind == prefer:
                chosen[block.part] = block
            elif block.kind in ("points", "rollup"):
                chosen.setdefault(block.part, block)
        return list(chosen.values())


@dataclass(frozen=True, slots=True)
class Keys:
    """A set of series as a condition that prunes files and row groups."""

    low: int
    high: int
    condition: str

    @classmethod
    def of(cls, series: Iterable[int]) -> Keys | None:
        ids = sorted(set(series))
        if not ids:
            return None
        low, high = ids[0], ids[-1]
        bounds = f"series BETWEEN {low} AND {high}"
        if high - low == len(ids) - 1:
            return cls(low, high, f"series = {low}" if low == high else bounds)
        runs = _contiguous(ids)
        if len(runs) <= _MANY_RANGES:
            ranges = " OR ".join(f"series BETWEEN {a} AND {b}" for a, b in runs)
        else:
            ranges = f"series IN ({', '.join(map(str, ids))})"
        return cls(low, high, f"{bounds} AND ({ranges})")

    def touch(self, block: Block) -> bool:
        return block.key_min <= self.high and block.key_max >= self.low


def _contiguous(ids: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for id in ids:
        if runs and runs[-1][1] == id - 1:
            runs[-1] = (runs[-1][0], id)
        else:
            runs.append((id, id))
    return runs


class Reader:
    """Asks one view through one connection."""

    def __init__(self, connection: Connection, view: View, files: BlockFiles | None) -> None:
        self._connection = connection
        self._view = view
        self._files = files

    def close(self) -> None:
        self._connection.close()

    # ── points ─────────────────────────────────────────────────────────────────────────────────

    def bounds(self, keys: Keys, axis: Axis) -> tuple[int, int] | None:
        """First and last place on the axis, both inclusive."""
        blocks = self._view.parts("rollup") if axis == "time" else self._view.closed("points")
        blocks = [block for block in blocks if keys.touch(block)]
        at = "time_ns" if axis == "time" else "step"
        raw = self._points_source(keys.condition, [b for b in blocks if b.kind == "points"])
        asked = [f"SELECT min({at}) AS low, max({at}) AS high FROM ({raw})"]
        rollups = [block for block in blocks if block.kind == "rollup"]
        if rollups:
            asked.append(
                "SELECT min(first_ns) AS low, max(last_ns) AS high "
                f"FROM {self._scan(rollups)} WHERE {keys.condition}"
            )
        row = self._connection.execute(
            f"SELECT min(low), max(high) FROM ({' UNION ALL '.join(asked)})"
        ).fetchone()
        return None if row is None or row[0] is None else (int(row[0]), int(row[1]))

    def curves(self, keys: Keys, axis: Axis, grid: Grid) -> list[Curve]:
        points, rollups = self._blocks_for(keys, axis, grid)
        at = "time_ns" if axis == "time" else "step"
        where = f"{keys.condition} AND {at} >= {grid.start} AND {at} < {grid.end}"
        source = _POINTS.format(source=self._points_source(where, points))
        if not rollups:
            query = _REDUCE_POINTS.format(cell=_cell(keys, at, grid), points=source)
        else:
            where = f"{keys.condition} AND first_ns >= {grid.start} AND first_ns < {grid.end}"
            cells = f"SELECT {_POINT_AS_CELL.format(at=at)} FROM {source} UNION ALL " + (
                f"SELECT {_CELL.format(at='first_ns')} FROM {self._scan(rollups)} WHERE {where}"
            )
            query = _REDUCE_CELLS.format(cell=_cell(keys, "place", grid), cells=cells)
        return _curves(self._connection.execute(query).fetchnumpy(), keys, axis, grid)

    def points(
        self, keys: Keys, start_ns: int | None, end_ns: int | None, rows: int
    ) -> Iterator[PointColumns]:
        blocks = [b for b in self._view.closed("points") if keys.touch(b)]
        blocks = [block for block in blocks if block.overlaps(start_ns, end_ns)]
        source = self._points_source(keys.condition + _between(start_ns, end_ns), blocks)
        result = self._connection.execute(f"{source} ORDER BY series, time_ns")
        while chunk := result.fetchmany(rows):
            yield PointColumns(*map(list, zip(*chunk, strict=True)))

    def _blocks_for(self, keys: Keys, axis: Axis, grid: Grid) -> tuple[list[Block], list[Block]]:
        if axis == "step":
            return [block for block in self._view.closed("points") if keys.touch(block)], []
        blocks = [
            block
            for block in self._view.parts("rollup" if grid.by_minutes else "points")
            if keys.touch(block) and block.overlaps(grid.start, grid.end)
        ]
        points = [block for block in blocks if block.kind == "points"]
        return points, [block for block in blocks if block.kind == "rollup"]

    def _points_source(self, where: str, blocks: Sequence[Block]) -> str:
        return self._source("points", POINT_COLUMNS, where, blocks)

    # ── spans and events ───────────────────────────────────────────────────────────────────────

    def rows(
        self,
        kind: Kind,
        columns: str,
        *,
        run: int | None,
        kinds: Sequence[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[tuple[Any, ...]]:
        blocks = [
            block
            for block in self._view.closed(kind)
            if block.overlaps(start_ns, end_ns)
            and (run is None or block.key_min <= run <= block.key_max)
        ]
        where = "true" if run is None else f"run = {run}"
        where += _between(start_ns, end_ns) + (" AND kind = ANY($kinds)" if kinds else "")
        way = "DESC" if newest_first else "ASC"
        query = self._source(kind, columns, where, blocks)
        query += f" ORDER BY time_ns {way}, journal {way}, place {way}"
        if limit is not None:
            query += f" LIMIT {limit}"
        given = {"kinds": list(kinds)} if kinds else None
        return self._connection.execute(query, given).fetchall()

    # ── both ───────────────────────────────────────────────────────────────────────────────────

    def _source(self, kind: Kind, columns: str, where: str, blocks: Sequence[Block]) -> str:
        scans = self._view.hot(kind)
        if blocks:
            scans.append(self._scan(blocks))
        return " UNION ALL ".join(f"SELECT {columns} FROM {scan} WHERE {where}" for scan in scans)

    def _scan(self, blocks: Iterable[Block]) -> str:
        assert self._files is not None
        return scan(self._files, (block.file for block in blocks))


def scan(files: BlockFiles, names: Iterable[str]) -> str:
    quoted = ", ".join("'" + str(files.path(name)).replace("'", "''") + "'" for name in names)
    return f"read_parquet([{quoted}])"


def _between(start_ns: int | None, end_ns: int | None) -> str:
    text = "" if start_ns is None else f" AND time_ns >= {max(start_ns, LOWEST)}"
    return text + ("" if end_ns is None else f" AND time_ns < {min(end_ns, HIGHEST)}")


def _cell(keys: Keys, at: str, grid: Grid) -> str:
    """Series and bucket in one number: grouping by one small key is a sixth cheaper than by two."""
    cells = (keys.high - keys.low + 1) * grid.buckets
    if cells > HIGHEST:
        raise UsageError(f"{grid.buckets} buckets are too many for series of so many metrics")
    wide = at if grid.fits_int64 else f"{at}::HUGEINT"
    bucket = f"(({wide} - ({grid.start})) // {grid.width})::BIGINT"
    whole = f"(series - {keys.low}) * {grid.buckets} + {bucket}"
    return f"({whole})::INTEGER" if cells < 2**31 else whole


def _curves(found: dict[str, npt.NDArray[Any]], keys: Keys, axis: Axis, grid: Grid) -> list[Curve]:
    cell = np.asarray(found["cell"], np.int64)
    if not len(cell):
        return []
    order = np.argsort(cell)
    series, bucket = np.divmod(cell[order], grid.buckets)
    series += keys.low
    columns = {name: np.asarray(found[name])[order] for name in _REDUCED}
    starts = np.flatnonzero(np.concatenate([[True], series[1:] != series[:-1]]))
    table = _Table(
        _positions(bucket, grid),
        columns,
        np.logical_or.reduceat(columns["finite"] == 0, starts).tolist(),
    )
    edges = pairwise([*starts.tolist(), len(series)])
    ids = series[starts].tolist()
    return [table.curve(i, ids[i], axis, grid.width, a, b) for i, (a, b) in enumerate(edges)]


def _positions(bucket: npt.NDArray[np.int64], grid: Grid) -> npt.NDArray[np.int64]:
    if grid.fits_int64:
        return grid.start + grid.width * bucket
    return np.array([grid.start + grid.width * index for index in bucket.tolist()], np.int64)


class _Table:
    """All curves below one another; cut into arrays, not lists.

    A heat map of 1,000 series has 3 million numbers, and making a Python object of each would
    cost more than the query.
    """

    def __init__(
        self,
        position: npt.NDArray[np.int64],
        columns: dict[str, npt.NDArray[Any]],
        gaps: list[bool],
    ) -> None:
        mean = columns["total"] / np.maximum(columns["finite"], 1)
        self._finite = columns["finite"]
        self._gaps = gaps
        """Whether a curve has a bucket without a finite value."""
        self._bytes = {name: column.tobytes() for name, column in columns.items()}
        self._bytes |= {"position": position.tobytes(), "mean": mean.tobytes()}

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
