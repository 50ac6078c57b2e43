"""Turning hot rows into sorted files, and many sorted files into few.

Level 0 is one generation's rows of one day; when a day has several parts of one level they become
one of the next; a day that is over becomes a single set of parts that share no series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import duckdb

from runwatch.store.blocks import CLOSED, MIXED_DAY, Block, BlockFiles, Kind
from runwatch.store.grid import DAY_NS, MINUTE_NS
from runwatch.store.hot import Connection
from runwatch.store.reading import EVENT_COLUMNS, POINT_COLUMNS, SPAN_COLUMNS, scan

# Measured on telemetry at 1 Hz: 1.1 bytes a point and 2 ms to find one series; row groups four
# times smaller cost 1.8 bytes, four times larger make every lookup decode four times as much.
_FORMAT: Final = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 122880"

_MAX_DAYS: Final = 16
"""More days than this in one generation (an import, a broken clock) share a file of stragglers."""

_LAYOUT: Final[dict[Kind, tuple[str, str, str]]] = {
    # columns, key, order
    "points": (POINT_COLUMNS, "series", "series, time_ns"),
    "spans": (SPAN_COLUMNS, "run", "run, time_ns"),
    "events": (EVENT_COLUMNS, "run", "run, time_ns"),
}


@dataclass(frozen=True, slots=True)
class Merge:
    kind: Kind
    day: int
    level: int
    inputs: tuple[Block, ...]


def plan_merges(
    blocks: Iterable[Block], *, now_ns: int, parts: int, close_seconds: float
) -> list[Merge]:
    by_day: dict[tuple[Kind, int], list[Block]] = defaultdict(list)
    for block in blocks:
        if block.kind != "rollup":
            by_day[block.kind, block.day].append(block)
    made = []
    for (kind, day), found in sorted(by_day.items()):
        over = day != MIXED_DAY and (day + 1) * DAY_NS + int(close_seconds * 1e9) <= now_ns
        merge = _close(kind, day, found, parts) if over else _step_up(kind, day, found, parts)
        if merge:
            made.append(merge)
    return made


def _close(kind: Kind, day: int, found: list[Block], parts: int) -> Merge | None:
    """Late rows for a closed day wait until they are worth rewriting it for: then an import of
    old data rewrites each row two or three times, not once per part."""
    whole = sum(block.rows for block in found if block.level == CLOSED)
    late = [block for block in found if block.level != CLOSED]
    worth = len(late) > 1 if not whole else 2 * sum(block.rows for block in late) >= whole
    if late and (worth or len(late) >= parts):
        return Merge(kind, day, CLOSED, tuple(found))
    return None


def _step_up(kind: Kind, day: int, found: list[Block], parts: int) -> Merge | None:
    found = sorted(found, key=lambda block: block.level)
    for level, group in groupby(found, key=lambda block: block.level):
        inputs = tuple(group)
        if len(inputs) >= parts:
            return Merge(kind, day, level + 1, inputs)
    return None


class Clusterer:
    """Writes blocks.  Nothing it writes exists for readers until someone registers it."""

    def __init__(
        self, connection: Connection, files: BlockFiles, next_part: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._files = files
        self._next_part = next_part

    def close(self) -> None:
        self._connection.close()

    def close_generation(self, generation: int) -> list[Block]:
        made: list[Block] = []
        for kind in _LAYOUT:
            table = f"{kind}_{generation}"
            for day, where in self._days(table):
                made += self._write(kind, day, 0, table, where)
        return made

    def merge(self, merge: Merge, *, rows: int) -> list[Block]:
        source = scan(self._files, (block.file for block in merge.inputs))
        made: list[Block] = []
        for low, high in self._ranges(merge, source, rows):
            where = f"{_LAYOUT[merge.kind][1]} BETWEEN {low} AND {high}"
            made += self._write(merge.kind, merge.day, merge.level, source, where)
        return made

    def readable(self, block: Block) -> bool:
        """Reads the whole file; for finding out which one is damaged."""
        try:
            self._connection.execute(
                f"SELECT count(COLUMNS(*)), max(COLUMNS(*)) FROM {scan(self._files, [block.file])}"
            ).fetchall()
        except duckdb.Error:
            return False
        return True

    def _days(self, table: str) -> list[tuple[int, str]]:
        day = f"(time_ns // {DAY_NS} - (time_ns % {DAY_NS} < 0)::BIGINT)"
        found = self._connection.execute(
            f"SELECT {day} AS day FROM {table} GROUP BY day ORDER BY count(*) DESC, day"
        ).fetchall()
        own = [int(row[0]) for row in found[:_MAX_DAYS]]
        days = [(d, f"time_ns >= {d * DAY_NS} AND time_ns < {(d + 1) * DAY_NS}") for d in own]
        if len(found) > _MAX_DAYS:
            days.append((MIXED_DAY, f"{day} NOT IN ({', '.join(map(str, own))})"))
        return days

    def _ranges(self, merge: Merge, source: str, rows: int) -> list[tuple[int, int]]:
        """Key ranges of about `rows` rows, so that a sort never needs the whole day in memory."""
        low = min(block.key_min for block in merge.inputs)
        high = max(block.key_max for block in merge.inputs)
        if sum(block.rows for block in merge.inputs) <= rows:
            return [(low, high)]
        key = _LAYOUT[merge.kind][1]
        counts = self._connection.execute(
            f"SELECT {key}, count(*) FROM {source} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        return _cut(counts, rows)

    def _write(self, kind: Kind, day: int, level: int, source: str, where: str) -> list[Block]:
        columns, key, order = _LAYOUT[kind]
        part = self._next_part()
        query = f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {order}"
        block = self._copy(kind, part, day, level, query, key, "time_ns", "time_ns")
        if kind != "points":
            return [block]
        cells = _rollup_query(scan(self._files, [block.file]))
        rollup = self._copy("rollup", part, day, level, cells, key, "first_ns", "last_ns")
        return [block, rollup]

    def _copy(
        self, kind: Kind, part: int, day: int, level: int, query: str, key: str, low: str, high: str
    ) -> Block:
        name = "mixed" if day == MIXED_DAY else str(day)
        file = f"{kind}-{name}-{part:06d}.parquet"
        quoted = str(self._files.temporary(file)).replace("'", "''")
        self._connection.execute(f"COPY ({query}) TO '{quoted}' ({_FORMAT})")
        size = self._files.publish(file)
        row = self._connection.execute(
            f"SELECT count(*), min({key}), max({key}), min({low}), max({high}) "
            f"FROM {scan(self._files, [file])}"
        ).fetchone()
        assert row is not None
        return Block(file, kind, part, day, level, row[0], size, *row[1:])


def _rollup_query(source: str) -> str:
    minute = f"(time_ns // {MINUTE_NS} - (time_ns % {MINUTE_NS} < 0)::BIGINT)"
    return f"""SELECT series, min(time_ns) AS first_ns, max(time_ns) AS last_ns,
        arg_min(value, time_ns) AS first, arg_max(value, time_ns) AS last,
        min(finite_value) AS minimum, max(finite_value) AS maximum, sum(finite_value) AS total,
        count(finite_value) AS finite, count(*) - count(finite_value) AS nonfinite
        FROM (SELECT series, time_ns, value, {minute} AS minute,
                     CASE WHEN isfinite(value) THEN value END AS finite_value FROM {source})
        GROUP BY series, minute ORDER BY series, first_ns"""


def _cut(counts: Sequence[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    held = 0
    for key, count in counts:
        if ranges and held + count <= rows:
            ranges[-1] = (ranges[-1][0], key)
            held += count
        else:
            ranges.append((key, key))
            held = count
    return ranges
