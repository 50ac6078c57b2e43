"""The log of one job, read from the journals of a directory.

Every journal of the job is followed from where the last call left it, so that a hundred new steps
cost a hundred records.  What several journals hold is put in order of time a stretch at a time:
of each journal that overlaps with others at most one stretch is in memory.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, compress
from pathlib import Path
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.log.entries import (
    Columns,
    Entry,
    Marks,
    from_event,
    logger_of,
    mark_of,
)
from runwatch.journal.liveness import is_alive
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import journal_directories, segment_indexes
from runwatch.record import START, Batch, Points, Position, RunScope, Series, position
from runwatch.record.life import GoodputEntry
from runwatch.sdk.identity import display_name, slug

LIVENESS_SECONDS: Final = 1.0
_ENOUGH_FOR_THE_SCOPE: Final = 4096
_AT_A_TIME: Final = 256 << 10
"""Bytes: a stretch with its columns and entries stays in the processor's cache, and there are too
few objects in it for the garbage collector to look through everything time and again."""

_LOW: Final = 0 if sys.byteorder == "little" else 3
_CURSOR: Final = "journals:"


class _Followed:
    """One journal: how far it was read, and what of that is not given out yet."""

    def __init__(self, reader: JournalReader, logger: str, marks: Marks, clock: Clock) -> None:
        assert reader.origin is not None
        self.origin = reader.origin
        self.unread = True
        self._reader = reader
        self._logger = logger
        self._marks = marks
        self._clock = clock
        self._codes: dict[int, int] = {}
        self._held = Columns(marks)
        self._base = START
        self._given = 0
        self._dead = self._done = False
        self._asked_ns = 0
        self.seek(START, 0)

    def close(self) -> None:
        self._reader.close()

    @property
    def place(self) -> tuple[Position, int]:
        return (self._base, self._given) if self._held else (self._reader.position, 0)

    @property
    def is_cut(self) -> bool:
        """Whether its beginning was dropped by retention."""
        return segment_indexes(self._reader.directory)[:1] != [0]

    def seek(self, start: Position, given: int) -> None:
        """Go on at an earlier value of `place`, perhaps from another process."""
        self._held = Columns(self._marks)
        self._done = False
        self.unread = start == START and not given
        # The definitions of series are at the beginning of the segment.
        self._reader.seek(position(start >> 32, 0))
        while self._reader.position < start and (batch := self._reader.read()) is not None:
            self._learn(batch)
        self._reader.seek(start)
        while given > 0 and self.load():  # stretches may have been longer then
            given -= self._let_go(given)

    def load(self) -> bool:
        """Whether there is something to give; reads on if need be."""
        while not self._held:
            if self._done:
                return False
            self.unread = False
            base = self._reader.position
            batch = self._reader.read(final=self._dead, max_bytes=_AT_A_TIME)
            if batch is None:
                if not self._dead and self._is_dead():
                    continue  # what looks unfinished will stay so
                self._done = self._dead
                if self._done:
                    self._reader.close()
                return False
            self._learn(batch)
            self._held, self._base, self._given = self._columns(batch), base, 0
        return True

    @property
    def first_ns(self) -> int:
        return self._held.first_ns

    @property
    def last_ns(self) -> int:
        return self._held.last_ns

    def take(self, until_ns: int) -> Columns:
        """What was recorded up to then."""
        taken, self._held = self._held.split(until_ns)
        self._given += len(taken)
        return taken

    def _let_go(self, count: int) -> int:
        """Of the first entries of the stretch, which were given out before; returns how many."""
        moments = sorted(chain(self._held.time_ns, (m for _, m, _ in self._held.others)))
        return len(self.take(moments[min(count, len(moments)) - 1]))

    def _is_dead(self) -> bool:
        now = self._clock.mono_ns()
        if now - self._asked_ns >= LIVENESS_SECONDS * 1e9 or not self._asked_ns:
            self._asked_ns = now
            self._dead = is_alive(self.origin) is False
        return self._dead

    # ── from records to columns ───────────────────────────────────────────────────────────────

    def _learn(self, batch: Batch) -> None:
        for definition in batch.definitions:
            if not isinstance(definition, Series):
                continue
            mark = mark_of(definition.metric, definition.labels)
            if mark is not None and logger_of(definition.labels) == self._logger:
                self._codes[definition.id] = self._marks.code(mark)

    def _columns(self, batch: Batch) -> Columns:
        codes, points = self._codes, batch.points
        code = _small_codes(points.series, codes)
        if code is None:
            if not codes.keys() >= set(points.series):
                points = _chosen(points, codes)
            code = array("I", map(codes.__getitem__, points.series))
        columns = Columns(self._marks, code, points.step, points.value, points.time_ns)
        row = last_ns = 0
        for time_ns, kind, body, _, _ in batch.events:
            if kind == GoodputEntry.KIND and (entry := self._entry(body)) is not None:
                row = bisect_right(points.time_ns, time_ns, row if time_ns >= last_ns else 0)
                columns.others.append((row, time_ns, entry))
                last_ns = time_ns
        return columns

    def _entry(self, body: Mapping[str, Any]) -> Entry | None:
        if logger_of(body) != self._logger:
            return None
        try:
            return from_event(body)
        except ValueError:
            return None  # longer than a record takes: not a log entry of any known kind


def _small_codes(series: array[int], codes: Mapping[int, int]) -> array[int] | None:
    """A byte for each point, if all are of the log and there are few kinds: the usual case."""
    known = bytes(number for number in codes if number < 256)
    numbers = series.tobytes()
    low = numbers[_LOW :: series.itemsize]
    if low.translate(None, known) or numbers.count(0) - low.count(0) < 3 * len(series):
        return None
    if max(codes.values(), default=0) > 255:
        return None
    table = bytearray(256)
    for number in known:
        table[number] = codes[number]
    return array("B", low.translate(table))


def _chosen(points: Points, known: Mapping[int, int]) -> Points:
    """Only the series of the log: a run has its loss in the same journal."""
    ours = [series in known for series in points.series]
    return Points(
        array("I", compress(points.series, ours)),
        array("q", compress(points.time_ns, ours)),
        array("q", compress(points.step, ours)),
        array("d", compress(points.value, ours)),
    )


def is_of_job(name: str) -> Callable[[RunScope], bool]:
    """Whether a process took part in the job: by the id that follows from its name, or by the
    name, since an orchestrator may have given another id."""
    run, shown = slug(name), display_name(name)
    # A name that was cleaned to be shown may be that of several jobs.
    return lambda scope: scope.run == run or scope.name == name == shown


class Journals:
    """Every journal under `root` whose run `is_ours`, as one log in order of time."""

    def __init__(
        self,
        root: Path,
        is_ours: Callable[[RunScope], bool],
        logger: str,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self.marks = Marks()
        self._root = root
        self._is_ours = is_ours
        self._logger = logger
        self._clock = clock
        self._followed: dict[str, _Followed] = {}
        self._others: set[str] = set()

    def close(self) -> None:
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()

    def discover(self) -> int:
        """Look for journals not seen before; returns how many are ours in all."""
        for directory in journal_directories(self._root):
            name = directory.name
            if name not in self._followed and name not in self._others:
                self._look(directory)
        return len(self._followed)

    @property
    def is_cut(self) -> bool:
        """Whether something at the beginning of a journal is gone."""
        return any(followed.is_cut for followed in self._followed.values())

    @property
    def cursor(self) -> str:
        """Of each journal where its next stretch begins, and how much of that is given out."""
        places = [(name, *f.place) for name, f in self._followed.items() if not f.unread]
        return _CURSOR + " ".join(f"{name}@{start:x}+{given:x}" for name, start, given in places)

    def resume(self, cursor: str) -> bool:
        """Go on behind `cursor`, or at the beginning; False if it is not one of ours.

        A journal that it does not name has come since, and is read whole.
        """
        places = _places(cursor)
        if places is None:
            return False
        self.discover()
        for name, followed in self._followed.items():
            followed.seek(*places.get(name, (START, 0)))
        return True

    def read(self, until_ns: int | None = None) -> Iterator[Columns]:
        """What is new, in order of the time at which it was recorded, up to `until_ns`."""
        self.discover()
        known = sorted(self._followed.values(), key=lambda f: f.origin.start_ns)
        fresh = deque(f for f in known if f.unread)
        open_ = [f for f in known if not f.unread]
        while True:
            open_ = [f for f in open_ if f.load()]
            if not open_ and not fresh:
                return
            # Up to here nothing can come in between any more.
            bound = min(
                (f.last_ns for f in open_), default=fresh[0].origin.start_ns if fresh else 0
            )
            if fresh and fresh[0].origin.start_ns <= bound:
                open_.append(fresh.popleft())
                continue
            if until_ns is not None and bound > until_ns:
                bound = until_ns
            parts = [f.take(bound) for f in open_ if f.first_ns <= bound]
            if not parts:
                return  # all that is left is later
            yield parts[0] if len(parts) == 1 else _merged(self.marks, parts)

    def _look(self, directory: Path) -> None:
        try:
            reader = JournalReader(directory, clock=self._clock)
        except OSError:
            return  # not ours to read, or not now
        try:
            batch = reader.read(max_bytes=_ENOUGH_FOR_THE_SCOPE)
        finally:
            reader.close()
        if batch is None or reader.origin is None:
            return  # being created: looked at again next time
        scopes = [d for d in batch.definitions if isinstance(d, RunScope)]
        if reader.origin.role == "agent" or (scopes and not any(map(self._is_ours, scopes))):
            self._others.add(directory.name)
        elif scopes:
            followed = _Followed(reader, self._logger, self.marks, self._clock)
            self._followed[directory.name] = followed


def _places(cursor: str) -> dict[str, tuple[Position, int]] | None:
    if cursor and not cursor.startswith(_CURSOR):
        return None
    places: dict[str, tuple[Position, int]] = {}
    try:
        for place in cursor.removeprefix(_CURSOR).split():
            name, _, at = place.rpartition("@")
            start, _, given = at.partition("+")
            places[name] = (Position(int(start, 16)), int(given, 16))
    except ValueError:
        return None
    return places


def _merged(marks: Marks, parts: Iterable[Columns]) -> Columns:
    """Several journals' entries of the same stretch of time, in order."""
    rows: list[tuple[int, int, int, int, float]] = []
    others: list[tuple[int, Entry]] = []
    for number, part in enumerate(parts):
        numbers = [number] * len(part.code)
        rows.extend(zip(part.time_ns, numbers, part.code, part.step, part.seconds, strict=True))
        others.extend((moment, entry) for _, moment, entry in part.others)
    rows.sort(key=lambda row: row[:2])
    others.sort(key=lambda other: other[0])
    merged = Columns(
        marks,
        array("I", [row[2] for row in rows]),
        array("q", [row[3] for row in rows]),
        array("d", [row[4] for row in rows]),
        array("q", [row[0] for row in rows]),
    )
    merged.others = [(bisect_right(merged.time_ns, m), m, entry) for m, entry in others]
    return merged
