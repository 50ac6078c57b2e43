"""Turns hot rows into sorted files, and many sorted files into few.

Level 0 is one generation's rows of one day.  When a day has several parts of one level, they become
one part of the next level.  When the day is over, it becomes one set of parts that share no series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Final

import duckdb
import numpy as np

from runwatch.buckets import DAY_NS, MINUTE_NS
from runwatch.store.duck.blocks import CLOSED, MIXED_DAY, Block, BlockFiles, Kind
from runwatch.store.duck.hot import Connection
from runwatch.store.duck.pages import cut, floored, scan
from runwatch.store.duck.reading import EVENT_COLUMNS, POINT_COLUMNS, SPAN_COLUMNS
from runwatch.store.entries import Integers

# Measured on telemetry at 1 Hz: 1.1 bytes a point and 2 ms to find one series.  Row groups four
# times smaller cost 1.8 bytes; four times larger, every lookup decodes four times as much.
# Dictionaries are kept small: with many series in a row group the engine would otherwise encode
# times and steps by dictionary, which takes two to three times the space of their differences.
_FORMAT: Final = (
    "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 1024, "
    "ROW_GROUP_SIZE"
)
_GROUP_ROWS: Final = 122_880
_LEAST_ROWS: Final = 2_048
"""The engine works on this many rows at a time anyway."""
_GROUP_BYTES: Final = 32 << 20
"""Size of events' bodies per row group: a row group is held in memory until it is complete."""

_MAX_DAYS: Final = 16
"""More days than this in one generation (an import, a broken clock) share a file of stragglers."""

_LAYOUT: Final[dict[Kind, tuple[str, str, str]]] = {
    # columns, key, order
    "points": (POINT_COLUMNS, "series", "series, time_ns"),
    "spans": (SPAN_COLUMNS, "run", "run, time_ns"),
    "events": (EVENT_COLUMNS, "run", "run, time_ns"),
}
_EVENT_KEY: Final = "run, time_ns, journal, place"
"""Identifies one event: its pieces share it."""
_ROLLUP: Final = ("*", "series", "series, first_ns")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file that is about to be written belongs."""

    kind: Kind
    part: int
    family: int
    day: int
    level: int

    @property
    def file(self) -> str:
        day = "mixed" if self.day == MIXED_DAY else str(self.day)
        return f"{self.kind}-{day}-{self.part:06d}.parquet"


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
    merges = []
    for (kind, day), blocks_of_day in sorted(by_day.items()):
        over = day != MIXED_DAY and (day + 1) * DAY_NS + int(close_seconds * 1e9) <= now_ns
        plan = _close if over else _step_up
        merge = plan(kind, day, blocks_of_day, parts)
        if merge:
            merges.append(merge)
    return merges


def _close(kind: Kind, day: int, blocks: list[Block], parts: int) -> Merge | None:
    """Late rows for a closed day wait until there are enough of them to rewrite the day.  So an
    import of old data rewrites each row two or three times, not once per part."""
    whole = sum(block.rows for block in blocks if block.level == CLOSED)
    late = [block for block in blocks if block.level != CLOSED]
    count = _families(late)
    worth = count > 1 if not whole else 2 * sum(block.rows for block in late) >= whole
    if late and (worth or count >= parts):
        return Merge(kind, day, CLOSED, tuple(blocks))
    return None


def _step_up(kind: Kind, day: int, blocks: list[Block], parts: int) -> Merge | None:
    blocks = sorted(blocks, key=lambda block: block.level)
    for level, group in groupby(blocks, key=lambda block: block.level):
        inputs = tuple(group)
        if _families(inputs) >= parts:
            return Merge(kind, day, level + 1, inputs)
    return None


def _families(blocks: Iterable[Block]) -> int:
    return len({block.family for block in blocks})


class Clusterer:
    """Writes blocks.  Readers do not see a block until somebody registers it."""

    def __init__(
        self,
        connection: Connection,
        files: BlockFiles,
        next_part: Callable[[], int],
        *,
        slice_bytes: int,
    ) -> None:
        self._connection = connection
        self._files = files
        self._next_part = next_part
        self._slice_bytes = slice_bytes
        self._taken_ns = 0
        self._wrote: list[str] = []

    def discard(self) -> None:
        """Delete the files written so far: the work was not finished, and no list names them."""
        for file in self._wrote:
            self._files.discard(file)

    def close(self) -> None:
        self._connection.close()

    def close_generation(self, generation: int, *, taken_ns: int) -> list[Block]:
        written: list[Block] = []
        self._taken_ns = taken_ns
        for kind in _LAYOUT:
            table = f"{kind}_{generation}"
            for day, where in self._days(table):
                part = family = self._next_part()
                for some in self._slices(kind, table, where):
                    written += self._write(Place(kind, part, family, day, 0), table, some)
                    part = self._next_part()
        return written

    def merge(self, merge: Merge, *, rows: int) -> list[Block]:
        source = scan(self._files, (block.file for block in merge.inputs))
        written: list[Block] = []
        self._taken_ns = max(self._files.taken_ns(block.file) for block in merge.inputs)
        part = family = self._next_part()
        for low, high in self._ranges(merge, source, rows):
            where = f"{_LAYOUT[merge.kind][1]} BETWEEN {low} AND {high}"
            for some in self._slices(merge.kind, source, where):
                place = Place(merge.kind, part, family, merge.day, merge.level)
                written += self._write(place, source, some)
                part = self._next_part()
        return written

    def without(self, blocks: Sequence[Block], gone: Mapping[Kind, Integers]) -> list[Block]:
        """The blocks of one part without the rows with these keys; [] if no rows are left."""
        written: list[Block] = []
        part = self._next_part()
        for block in blocks:
            columns, key, order = _LAYOUT.get(block.kind, _ROLLUP)
            low, high = ("first_ns", "last_ns") if block.kind == "rollup" else ("time_ns",) * 2
            self._taken_ns = self._files.taken_ns(block.file)
            self._note(gone[block.kind])
            rest = f"FROM {scan(self._files, [block.file])} WHERE {key} NOT IN (FROM noted)"
            place = Place(block.kind, part, block.family, block.day, block.level)
            if self._has(f"SELECT 1 {rest} LIMIT 1"):
                query = f"SELECT {columns} {rest} ORDER BY {order}"
                written.append(self._copy(place, query, key, low, high))
        return written

    def holds(self, block: Block, keys: Integers) -> bool:
        """Whether the block has a row with one of these sorted keys."""
        within = keys[np.searchsorted(keys, block.key_min) :]
        within = within[: np.searchsorted(within, block.key_max, "right")]
        if not len(within):
            return False
        self._note(within)
        key, source = _LAYOUT.get(block.kind, _ROLLUP)[1], scan(self._files, [block.file])
        bounds = f"{key} BETWEEN {within[0]} AND {within[-1]}"
        return self._has(f"SELECT 1 FROM {source} WHERE {bounds} AND {key} IN (FROM noted) LIMIT 1")

    def _note(self, keys: Integers) -> None:
        """Put keys into a table for the next query: there may be too many for its text."""
        incoming = {"key": keys}
        self._connection.execute("CREATE OR REPLACE TEMP TABLE noted AS SELECT key FROM incoming")
        del incoming

    def _has(self, query: str) -> bool:
        return self._connection.execute(query).fetchone() is not None

    def readable(self, block: Block) -> bool:
        """Whether the file can be read as a whole; finds out which file is damaged.

        Uses a hash, since the engine may answer counts and extremes from statistics alone.
        """
        try:
            self._connection.execute(
                f"SELECT bit_xor(hash(COLUMNS(*))) FROM {scan(self._files, [block.file])}"
            ).fetchall()
        except duckdb.Error:
            return False
        return True

    def _days(self, table: str) -> list[tuple[int, str]]:
        day = floored("time_ns", DAY_NS)
        counted = self._connection.execute(
            f"SELECT {day} AS day FROM {table} GROUP BY day ORDER BY count(*) DESC, day"
        ).fetchall()
        own = [int(row[0]) for row in counted[:_MAX_DAYS]]
        days = [(d, f"time_ns >= {d * DAY_NS} AND time_ns < {(d + 1) * DAY_NS}") for d in own]
        if len(counted) > _MAX_DAYS:
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
        return [ends for ends, _ in cut(counts, rows)]

    def _slices(self, kind: Kind, source: str, where: str) -> list[str]:
        """Conditions that each choose about `slice_bytes` of events' bodies: sorting them takes
        several times that memory, and the engine does not spill all of it to disk."""
        if kind != "events":
            return [where]
        sizes = f"SELECT {_EVENT_KEY}, strlen(body) AS size FROM {source} WHERE {where}"
        before = f"sum(size) OVER (ORDER BY {_EVENT_KEY} ROWS UNBOUNDED PRECEDING) - size"
        slice_ = f"({before}) // {self._slice_bytes}"
        numbers = f"SELECT ({_EVENT_KEY}) AS key, {slice_} AS slice FROM ({sizes})"
        firsts = self._connection.execute(
            f"SELECT DISTINCT min(key) AS first FROM ({numbers}) GROUP BY slice ORDER BY first"
        ).fetchall()
        ends = [_before(first) for (first,) in firsts[1:]]
        starts = ["true", *(f"NOT {end}" for end in ends)]
        return [
            f"{where} AND {start} AND {end}"
            for start, end in zip(starts, [*ends, "true"], strict=True)
        ]

    def _write(self, place: Place, source: str, where: str) -> list[Block]:
        columns, key, order = _LAYOUT[place.kind]
        query = f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {order}"
        block = self._copy(place, query, key, "time_ns", "time_ns")
        if place.kind != "points":
            return [block]
        cells = _rollup_query(scan(self._files, [block.file]))
        rollup = replace(place, kind="rollup")
        return [block, self._copy(rollup, cells, key, "first_ns", "last_ns")]

    def _copy(self, place: Place, query: str, key: str, low: str, high: str) -> Block:
        self._wrote.append(place.file)
        quoted = str(self._files.temporary(place.file)).replace("'", "''")
        rows = self._group_rows(query) if place.kind == "events" else _GROUP_ROWS
        self._connection.execute(f"COPY ({query}) TO '{quoted}' ({_FORMAT} {rows})")
        size = self._files.publish(place.file, self._taken_ns)
        row = self._connection.execute(
            f"SELECT count(*), min({key}), max({key}), min({low}), max({high}) "
            f"FROM {scan(self._files, [place.file])}"
        ).fetchone()
        assert row is not None
        count, key_min, key_max, time_min, time_max = row
        return Block(
            file=place.file,
            **asdict(place),
            rows=count,
            bytes=size,
            key_min=key_min,
            key_max=key_max,
            time_min=time_min,
            time_max=time_max,
        )

    def _group_rows(self, query: str) -> int:
        """How many events a row group may have."""
        average = self._connection.execute(f"SELECT avg(strlen(body)) FROM ({query})").fetchone()
        event_bytes = (average[0] if average else None) or 1
        return max(min(int(_GROUP_BYTES / event_bytes), _GROUP_ROWS), _LEAST_ROWS)


def _before(key: Sequence[int]) -> str:
    """SQL: events with a lower key.  In files the engine cannot compare rows of several columns."""
    condition = "false"
    for name, value in reversed(list(zip(_EVENT_KEY.split(", "), key, strict=True))):
        condition = f"({name} < {value} OR {name} = {value} AND {condition})"
    return condition


def _rollup_query(source: str) -> str:
    minute = floored("time_ns", MINUTE_NS)
    return f"""SELECT series, min(time_ns) AS first_ns, max(time_ns) AS last_ns,
        arg_min(value, time_ns) AS first, arg_max(value, time_ns) AS last,
        min(finite_value) AS minimum, max(finite_value) AS maximum, sum(finite_value) AS total,
        count(finite_value) AS finite, count(*) - count(finite_value) AS nonfinite
        FROM (SELECT series, time_ns, value, {minute} AS minute,
                     CASE WHEN isfinite(value) THEN value END AS finite_value FROM {source})
        GROUP BY series, minute ORDER BY series, first_ns"""
