"""The rows that exist when a question begins, and which of them the question can need.

Files and row groups that cannot hold matching rows are left out before the engine is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from runwatch.buckets import HIGHEST, LOWEST, MINUTE_NS
from runwatch.store.duck.blocks import Block, BlockFiles, Kind
from runwatch.store.duck.hot import Connection
from runwatch.store.entries import Integers

_MANY_RANGES: Final = 16


@dataclass(frozen=True, slots=True)
class View:
    """The tables and blocks that exist for a reader that begins now."""

    generations: tuple[int, ...]
    blocks: tuple[Block, ...]

    def hot(self, kind: Kind) -> list[str]:
        return [f"{kind}_{generation}" for generation in self.generations]

    def closed(self, kind: Kind) -> list[Block]:
        return [block for block in self.blocks if block.kind == kind]

    def parts(self, prefer: Kind) -> list[Block]:
        """One block of points per part: of the preferred kind, or the other if that is gone."""
        chosen: dict[int, Block] = {}
        for block in self.blocks:
            if block.kind == prefer:
                chosen[block.part] = block
            elif block.kind in ("points", "rollup"):
                chosen.setdefault(block.part, block)
        return list(chosen.values())


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """A set of series as a condition that prunes files and row groups."""

    ids: Integers
    """Ascending."""
    condition: str

    @classmethod
    def of(cls, series: Iterable[int]) -> Keys | None:
        ids = sorted(set(series))
        return cls(np.array(ids, np.int64), _condition(ids)) if ids else None

    def between(self, low: int, high: int) -> Keys:
        first, after = np.searchsorted(self.ids, [low, high + 1])
        ids = self.ids[first:after]
        return Keys(ids, _condition(ids.tolist()))

    @property
    def is_contiguous(self) -> bool:
        return bool(self.ids[-1] - self.ids[0] == len(self.ids) - 1)

    def touch(self, block: Block) -> bool:
        return bool(block.key_min <= self.ids[-1] and block.key_max >= self.ids[0])


def _condition(ids: Sequence[int]) -> str:
    low, high = ids[0], ids[-1]
    bounds = f"series BETWEEN {low} AND {high}"
    if high - low == len(ids) - 1:
        return f"series = {low}" if low == high else bounds
    runs = _contiguous(ids)
    if len(runs) <= _MANY_RANGES:
        ranges = " OR ".join(f"series BETWEEN {a} AND {b}" for a, b in runs)
    else:
        ranges = f"series IN ({', '.join(map(str, ids))})"
    return f"{bounds} AND ({ranges})"


def _contiguous(ids: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for id in ids:
        if runs and runs[-1][1] == id - 1:
            runs[-1] = (runs[-1][0], id)
        else:
            runs.append((id, id))
    return runs


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of one kind, at any time."""

    kind: Kind
    where: str
    run: int | None = None
    """For spans and events …"""
    keys: Keys | None = None
    """… and for points: which files can hold some."""

    def touches(self, block: Block) -> bool:
        if self.keys is not None:
            return self.keys.touch(block)
        return self.run is None or block.key_min <= self.run <= block.key_max


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Some series over a range of time, and the blocks that may hold their rows."""

    keys: Keys
    start_ns: int | None
    end_ns: int | None
    blocks: Sequence[Block]

    @classmethod
    def of(
        cls, keys: Keys, start_ns: int | None, end_ns: int | None, blocks: Iterable[Block]
    ) -> Page:
        touched = [b for b in blocks if keys.touch(b) and b.overlaps(start_ns, end_ns)]
        return cls(keys, start_ns, end_ns, touched)

    def of_series(self, low: int, high: int) -> Page:
        return Page.of(self.keys.between(low, high), self.start_ns, self.end_ns, self.blocks)

    def of_minutes(self, first: int, last: int) -> Page:
        start, end = first * MINUTE_NS, (last + 1) * MINUTE_NS
        start = start if self.start_ns is None else max(start, self.start_ns)
        end = end if self.end_ns is None else min(end, self.end_ns)
        return Page.of(self.keys, start, end, self.blocks)

    def chosen(self, kind: Kind) -> list[Block]:
        return [block for block in self.blocks if block.kind == kind]

    @property
    def where(self) -> str:
        return self.keys.condition + between(self.start_ns, self.end_ns)

    @property
    def where_rollup(self) -> str:
        """Roll-ups that begin in the page."""
        return self.keys.condition + between(self.start_ns, self.end_ns, "first_ns")


class RowGroups:
    """How many rows of some series a block can hold, by the keys of its row groups.

    A block never changes, so each is read once, and the result outlives the reader.
    """

    def __init__(self, files: BlockFiles | None) -> None:
        self._files = files
        self._known: dict[str, tuple[Integers, Integers, Integers]] = {}

    def forget(self, files: Iterable[str]) -> None:
        for file in files:
            self._known.pop(file, None)

    def rows(self, connection: Connection, block: Block, keys: Keys) -> int:
        low, high, rows = self._known.get(block.file) or self._load(connection, block)
        touched = (low <= keys.ids[-1]) & (high >= keys.ids[0])
        return int(rows[touched].sum())

    def _load(self, connection: Connection, block: Block) -> tuple[Integers, Integers, Integers]:
        assert self._files is not None
        groups = connection.execute(
            f"""SELECT coalesce(stats_min_value::BIGINT, {block.key_min}),
                       coalesce(stats_max_value::BIGINT, {block.key_max}), row_group_num_rows
                FROM parquet_metadata({quoted(self._files, block.file)})
                WHERE path_in_schema = 'series'"""
        ).fetchall()
        low, high, rows = np.array(groups, np.int64).reshape(-1, 3).T
        self._known[block.file] = low, high, rows
        return low, high, rows


# ── as SQL ─────────────────────────────────────────────────────────────────────────────────────


def scan(files: BlockFiles, names: Iterable[str]) -> str:
    return f"read_parquet([{', '.join(quoted(files, name) for name in names)}])"


def quoted(files: BlockFiles, name: str) -> str:
    return "'" + str(files.path(name)).replace("'", "''") + "'"


def floored(column: str, unit: int) -> str:
    """The number of whole units, rounded down; SQL's own division rounds towards zero."""
    return f"({column} // {unit} - ({column} % {unit} < 0)::BIGINT)"


def cut(counts: Iterable[tuple[int, int]], rows: int) -> list[tuple[tuple[int, int], int]]:
    """Ranges of keys (both ends inclusive) with about `rows` rows each, and how many they have."""
    ranges: list[tuple[tuple[int, int], int]] = []
    for key, count in counts:
        if ranges and ranges[-1][1] + count <= rows:
            (low, _), held = ranges[-1]
            ranges[-1] = ((low, key), held + count)
        else:
            ranges.append(((key, key), count))
    return ranges


def between(start: int | None, end: int | None, column: str = "time_ns") -> str:
    text = "" if start is None else f" AND {column} >= {max(start, LOWEST)}"
    return text + ("" if end is None else f" AND {column} < {min(end, HIGHEST)}")
