"""What to rebuild from when the database is lost: blocks, cursors, catalogue, latest values.

    manifest.log
        8 bytes    magic, of which the last two are the version
        frames     one after another; each has
            1 byte     kind: `R` or `S`
            3 bytes    zero
            4 bytes    CRC-32 of kind and payload
            8 bytes    length of the payload
            payload    msgpack

`R` holds new rows of the catalogue, to be added to those of earlier frames.  The catalogue only
grows.  `S` holds what changed since the last `S`: blocks and, if the oldest generation is another
one now, cursors and latest values.  An `S` that is `whole` replaces all before it.

A change is appended and fsynced, so saving costs as much as it changes.  When most of the states'
bytes are outdated, a new file replaces the old one.  A crash can tear the last frame: the frames
before it are valid, as if the crash had come a moment earlier.  A file with a bad frame before a
good one is not used at all.  An older Runwatch wrote one `manifest.json` instead: it is read if
there is no log, and deleted when there is one.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from runwatch.store.duck import hot
from runwatch.store.duck.blocks import Block, fsync
from runwatch.store.duck.catalog import TABLES
from runwatch.store.duck.hot import Connection, Seed
from runwatch.store.duck.latest import Floats
from runwatch.store.entries import Integers

LOG: Final = "manifest.log"
JSON: Final = "manifest.json"
MAGIC: Final = b"RWMANI01"
SPARE_BYTES: Final = 1 << 20
"""Bytes of outdated states before a new file is worth it."""

_ROWS, _STATE = ord("R"), ord("S")
_HEAD: Final = struct.Struct("<B3xIQ")
_BEGINS: Final = re.compile(rb"[RS]\0\0\0")
_SOME_ROWS: Final = 100_000
_CURSOR, _LATEST = 3, 4


@dataclass(frozen=True, slots=True)
class Manifest:
    """Enough to serve the closed blocks and to request the rest again, without the database."""

    change: int
    generation: int
    blocks: list[Block]
    cursors: list[tuple[int, int, int]]
    """Journal number, position, last_ns: as of the moment when `generation` began."""
    catalog: Mapping[str, Sequence[Sequence[Any]]]
    latest: tuple[Integers, Integers, Integers, Floats]
    """Slot, time, step, value."""


class _Rows(msgspec.Struct):
    counts: dict[str, int]
    rows: msgspec.Raw


class _State(msgspec.Struct):
    change: int
    generation: int
    whole: bool
    add: list[Block]
    remove: list[str]
    cursors: bytes
    """int64, little-endian: three numbers per journal, only for journals that moved."""
    latest: bytes
    """… and four per series; the fourth holds the bits of a float64."""


class _Frame(NamedTuple):
    kind: int
    start: int
    payload: memoryview
    end: int


class ManifestLog:
    """The file of one directory.  Used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOG
        self._forget()
        self.is_torn = False
        """Whether the last change was not written completely."""
        content = _content(self._path)
        if content is not None and not self._read(content):
            self._forget()
            self.is_torn = False
        self._old = None if self._length else _of_json(directory / JSON)

    def _forget(self) -> None:
        self._length = 0
        """The length that is known to be good; 0 if there is no good file."""
        self._counts = dict.fromkeys(TABLES, 0)
        self._change = self._generation = -1
        self._blocks: dict[str, Block] = {}
        self._cursors, self._latest = _nothing(_CURSOR), _nothing(_LATEST)
        self._state_bytes = self._whole_bytes = 0

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    @property
    def change(self) -> int | None:
        if self._length:
            return self._change
        return None if self._old is None else self._old.change

    def load(self) -> Manifest | None:
        """The whole manifest; None if there is none or it is damaged."""
        if not self._length:
            return self._old
        catalog: dict[str, list[Sequence[Any]]] = {table: [] for table in TABLES}
        content = self._path.read_bytes()[: self._length]
        for frame in _frames(content):
            if frame.kind == _ROWS:
                rows = msgspec.msgpack.decode(frame.payload, type=_Rows).rows
                for table, some in msgspec.msgpack.decode(rows).items():
                    catalog[table] += some
        slot, time_ns, step, value = self._latest.T
        return Manifest(
            self._change,
            self._generation,
            list(self._blocks.values()),
            [(journal, position, last) for journal, position, last in self._cursors.tolist()],
            catalog,
            (slot, time_ns, step, np.ascontiguousarray(value).view(np.float64)),
        )

    def distrust(self) -> None:
        """The manifest is out of date: the next `save` writes everything anew."""
        self._forget()
        self._old, self.is_torn = None, False

    def _read(self, content: bytes) -> bool:
        """Whether there is a state, and only the end of the file is bad."""
        cursors, latest = [self._cursors], [self._latest]
        for frame in _frames(content):
            if frame.kind == _ROWS:
                counts = msgspec.msgpack.decode(frame.payload, type=_Rows).counts
                self._counts |= {name: self._counts[name] + n for name, n in counts.items()}
            else:
                state = msgspec.msgpack.decode(frame.payload, type=_State)
                if state.whole:
                    cursors, latest, self._blocks = [], [], {}
                self._take(state, frame.end - frame.start)
                cursors.append(_numbers(state.cursors, _CURSOR))
                latest.append(_numbers(state.latest, _LATEST))
            self._length = frame.end
        self.is_torn = self._length < len(content)
        self._cursors, self._latest = _by_key(cursors), _by_key(latest)
        return self._change >= 0 and _is_torn_only(content, self._length)

    def _take(self, state: _State, size: int) -> None:
        self._change, self._generation = state.change, state.generation
        for file in state.remove:
            self._blocks.pop(file, None)
        self._blocks |= {block.file: block for block in state.add}
        self._state_bytes = size if state.whole else self._state_bytes + size
        self._whole_bytes = size if state.whole else self._whole_bytes

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    def is_current(self, connection: Connection, change: int) -> bool:
        """Whether the database, as opened, has nothing that must still be saved here."""
        oldest = hot.load_generations(connection)[0][0]
        return (
            self._length > 0
            and not self.is_torn
            and (self._change, self._generation) == (change, oldest)
            and all(hot.count(connection, name) >= n for name, n in self._counts.items())
        )

    def save(self, connection: Connection, blocks: Sequence[Block], change: int) -> None:
        """The cursors are those of the oldest generation that is in no block yet.  A store rebuilt
        from here has no rows of that generation, and must request everything since it began.

        The catalogue may be newer than the cursors: producers repeat definitions with the records.
        """
        with hot.snapshot(connection):  # the writer continues meanwhile
            generation, created_ns = hot.load_generations(connection)[0]
            cursors, latest = self._cursors, self._latest
            if generation != self._generation:
                cursors, latest = _seeded(hot.load_seed(connection, generation, created_ns))
            whole = partial(_whole, change, generation, blocks, cursors, latest)
            new = {name: hot.load_rows(connection, name, n) for name, n in self._counts.items()}
            if not self._length or not self._is_prefix(connection, new):
                self._begin(connection, whole())
            else:
                moved, newer = _changed(self._cursors, cursors), _changed(self._latest, latest)
                add, gone = self._changed_blocks(blocks)
                change_of = _State(change, generation, False, add, gone, b"", b"")
                if moved is None or newer is None:
                    change_of = whole()
                else:
                    change_of.cursors, change_of.latest = moved.tobytes(), newer.tobytes()
                self._append(new, change_of)
        self._cursors, self._latest = cursors, latest
        if self._state_bytes > 2 * self._whole_bytes + SPARE_BYTES:
            self._squeeze(whole())

    def _is_prefix(self, connection: Connection, new: Mapping[str, Sequence[Any]]) -> bool:
        """Whether the catalogue is exactly the rows saved here plus these new ones."""
        return all(
            hot.count(connection, name) == n + len(new[name]) for name, n in self._counts.items()
        )

    def _changed_blocks(self, blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
        """The new blocks, and the names of the removed ones."""
        files = {block.file for block in blocks}
        add = [block for block in blocks if block.file not in self._blocks]
        return add, [file for file in self._blocks if file not in files]

    def _append(self, new: Mapping[str, Sequence[Any]], state: _State) -> None:
        some = {name: rows for name, rows in new.items() if rows}
        if some:
            self._add(_rows_frame(some))
            for name, rows in some.items():
                self._counts[name] += len(rows)
        frame = _state_frame(state)
        self._add(frame)
        if state.whole:
            self._blocks = {}
        self._take(state, len(frame))

    def _add(self, frame: bytes) -> None:
        """Each frame is durable before the next begins: a crash can tear only the last one."""
        with self._path.open("r+b") as file:
            file.truncate(self._length)  # drops a frame that failed halfway
            file.seek(self._length)
            file.write(frame)
            file.flush()
            os.fsync(file.fileno())
        self._length += len(frame)

    def _begin(self, connection: Connection, state: _State) -> None:
        """Write a file with everything."""
        counts = dict.fromkeys(TABLES, 0)

        def frames() -> Iterator[bytes]:
            for name in TABLES:
                for rows in hot.all_rows(connection, name, _SOME_ROWS):
                    counts[name] += len(rows)
                    yield _rows_frame({name: rows})

        self._replace(frames(), state)
        self._counts = counts

    def _squeeze(self, state: _State) -> None:
        """Write a file with the same catalogue and only the last state."""
        content = self._path.read_bytes()[: self._length]
        rows = (content[f.start : f.end] for f in _frames(content) if f.kind == _ROWS)
        self._replace(rows, state)

    def _replace(self, rows: Iterator[bytes], state: _State) -> None:
        temporary, last = self._path.with_name(f"{LOG}.tmp"), _state_frame(state)
        with temporary.open("wb") as file:
            file.write(MAGIC)
            for frame in rows:
                file.write(frame)
            file.write(last)
            file.flush()
            os.fsync(file.fileno())
            length = file.tell()
        temporary.rename(self._path)
        fsync(self._directory)
        (self._directory / JSON).unlink(missing_ok=True)
        self._length, self._blocks, self._old, self.is_torn = length, {}, None, False
        self._take(state, len(last))


# ── frames ─────────────────────────────────────────────────────────────────────────────────────


def _frames(content: bytes) -> Iterator[_Frame]:
    """The complete frames, up to the first that is not."""
    at = len(MAGIC) if content.startswith(MAGIC) else len(content)
    while (frame := _frame_at(content, at)) is not None:
        yield frame
        at = frame.end


def _frame_at(content: bytes, at: int) -> _Frame | None:
    if at + _HEAD.size > len(content):
        return None
    kind, check, length = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + length
    payload = memoryview(content)[at + _HEAD.size : end]
    if kind not in (_ROWS, _STATE) or end > len(content) or _check(kind, payload) != check:
        return None
    return _Frame(kind, at, payload, end)


def _is_torn_only(content: bytes, good: int) -> bool:
    """Whether a crash can have left the rest after the good frames: no good frame follows it."""
    return not any(_frame_at(content, at.start()) for at in _BEGINS.finditer(content, good))


def _frame(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, _check(kind, payload), len(payload)) + payload


def _check(kind: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, kind)


def _rows_frame(rows: Mapping[str, Sequence[Any]]) -> bytes:
    counts = {name: len(some) for name, some in rows.items()}
    packed = _Rows(counts, msgspec.Raw(msgspec.msgpack.encode(rows)))
    return _frame(_ROWS, msgspec.msgpack.encode(packed))


def _state_frame(state: _State) -> bytes:
    return _frame(_STATE, msgspec.msgpack.encode(state))


def _whole(
    change: int, generation: int, blocks: Sequence[Block], cursors: Integers, latest: Integers
) -> _State:
    return _State(change, generation, True, list(blocks), [], cursors.tobytes(), latest.tobytes())


# ── tables of numbers, one row per key, the key first ──────────────────────────────────────────


def _nothing(width: int) -> Integers:
    return np.zeros((0, width), np.int64)


def _seeded(seed: Seed) -> tuple[Integers, Integers]:
    """The seed's cursors and latest values."""
    *numbers, value = seed.latest
    return (
        _by_key([np.array(seed.cursors, np.int64).reshape(-1, _CURSOR)]),
        _by_key([np.column_stack([*numbers, value.view(np.int64)])]),
    )


def _numbers(content: bytes, width: int) -> Integers:
    return np.frombuffer(content, "<i8").astype(np.int64, copy=False).reshape(-1, width)


def _by_key(parts: Sequence[Integers]) -> Integers:
    """Rows sorted by key; of several with one key, the last."""
    rows = np.concatenate(parts)
    if len(rows) < 2 or (rows[1:, 0] > rows[:-1, 0]).all():
        return rows
    _, at = np.unique(rows[::-1, 0], return_index=True)
    newest: Integers = rows[len(rows) - 1 - at]
    return newest


def _changed(old: Integers, new: Integers) -> Integers | None:
    """The rows that are new or different; None if an old one is missing."""
    if new is old or not len(old):
        return new[len(old) :]
    at = np.minimum(np.searchsorted(old[:, 0], new[:, 0]), len(old) - 1)
    existing = old[at, 0] == new[:, 0]
    if int(existing.sum()) < len(old):
        return None
    changed: Integers = new[~(existing & (old[at] == new).all(axis=1))]
    return changed


# ── files ──────────────────────────────────────────────────────────────────────────────────────


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _of_json(path: Path) -> Manifest | None:
    """The manifest as older versions wrote it, up to version 3 of the schema."""
    try:
        manifest = json.loads(path.read_bytes())
        columns = list(zip(*manifest["latest"], strict=True)) or [(), (), (), ()]
        slot, time_ns, step = (np.array(column, np.int64) for column in columns[:3])
        return Manifest(
            manifest["change"],
            manifest["generation"],
            [Block(**block) for block in manifest["blocks"]],
            [(journal, position, last) for journal, position, last in manifest["cursors"]],
            manifest["catalog"],
            (slot, time_ns, step, np.array(columns[3], np.float64)),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
