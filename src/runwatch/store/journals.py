"""A store that leaves steps in the journals: for one question about journals not stored anywhere.

Most of a journal is steps, and storing them costs more than answering.  So only the rare records
(processes, events, the newest point of every series) go into an engine in memory.  For the rest we
note which stretch of which journal covers which time.  A replay of a run then reads the journals
themselves, and gives what `DuckReplay` would give if all were stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from runwatch.buckets import HIGHEST, LOWEST
from runwatch.clock import Clock, system_clock
from runwatch.errors import StoreDamaged
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import HEADER_LENGTH
from runwatch.record import (
    START,
    Batch,
    JournalId,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
    Verdict,
    position,
)
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.entries import Integers
from runwatch.store.replay import (
    by_journal,
    chosen_journals,
    chosen_series,
    definitions,
    in_order,
)
from runwatch.store.store import Replay, Tally, Wanted

STRETCH_ROWS: Final = 4_000_000
"""Rows per part of a replay, counting all records: the ones we need of them take about 80 MB."""
LEAST_BYTES, MOST_BYTES = 32 << 10, 1 << 20
LAYER_BYTES: Final = 64 << 20
"""The size of one stretch of each journal, all journals together."""


def stretch_bytes(journals: int) -> int:
    """How much to read of each journal at a time, so that all together fit in memory."""
    return max(LEAST_BYTES, min(LAYER_BYTES // max(journals, 1), MOST_BYTES))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a journal that was read at once."""

    start: Position
    end: Position
    low_ns: int
    """No record in it is older than this."""
    rows: int


@dataclass(slots=True)
class _Known:
    """What was noted about a journal."""

    kept: set[int] = field(default_factory=set)
    """Series of which every point is stored."""
    stretches: list[Stretch] = field(default_factory=list)


class JournalStore(DuckStore):
    """The `Store` of a directory's journals, as far as `write` was given them.

    `keeps` says for which metrics every point is stored; of the others only the newest are.
    """

    def __init__(
        self, root: Path, *, keeps: Callable[[str], bool], clock: Clock = system_clock
    ) -> None:
        super().__init__(None, None, clock, DuckSettings())
        self._root = root
        self._keeps = keeps
        self._known: dict[JournalId, _Known] = {}

    def write(self, batches: Sequence[Batch]) -> list[Verdict]:
        verdicts = super().write([self._thinned(batch) for batch in batches])
        for batch, verdict in zip(batches, verdicts, strict=True):
            if verdict.accepted:
                noted = Stretch(batch.start, batch.end, _low_ns(batch), batch.records)
                self._known[batch.origin.journal].stretches.append(noted)
        return verdicts

    def replay(self, run: RunId, wanted: Wanted, *, attempts: int = 4) -> Replay:
        journals = chosen_journals(self._catalog, run, wanted)
        series = chosen_series(self._catalog, journals, run, wanted)
        parts = []
        for journal, mine in by_journal(journals, series):
            defined = definitions(self._catalog, journal, mine, run, wanted)
            name = journal.origin.journal
            notes = self._known.get(name, _Known())
            introduction = Batch(journal.origin, START, START, defined)
            since = LOWEST if wanted.since is None else wanted.since[name]
            reader = JournalReader(self._root / "journals" / name, clock=self._clock)
            parts.append(_Part(introduction, reader, tuple(notes.stretches), wanted.kinds, since))
        return JournalReplay(parts)

    def _thinned(self, batch: Batch) -> Batch:
        notes = self._known.setdefault(batch.origin.journal, _Known())
        for definition in batch.definitions:
            if isinstance(definition, Series) and self._keeps(definition.metric):
                notes.kept.add(definition.id)
        return Batch(
            batch.origin, batch.start, batch.end, batch.definitions,
            _newest_points(batch.points, notes.kept), _newest_edge(batch.spans),
            batch.events, batch.skipped_records,
        )  # fmt: skip


def _newest_points(points: Points, kept: set[int]) -> Points:
    """The newest point of each series, and all points of the series in `kept`."""
    if not len(points):
        return points
    series, times = _numbers(points.series, np.uint32), _numbers(points.time_ns)
    order = np.arange(len(points))
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
    ids, last = np.unique(series[order][::-1], return_index=True)
    rows = order[::-1][last]
    if not kept.isdisjoint(ids.tolist()):
        rows = np.union1d(rows, np.flatnonzero(np.isin(series, list(kept))))
    return _some_points(points, np.sort(rows))


def _newest_edge(spans: Spans) -> Spans:
    """The newest span edge: it shows until when the process recorded."""
    if not len(spans):
        return spans
    at = int(_numbers(spans.time_ns).argmax())
    return _some_spans(spans, slice(at, at + 1))


def _low_ns(batch: Batch) -> int:
    columns = (batch.points.time_ns, batch.spans.time_ns)
    lows = [int(_numbers(times).min()) for times in columns if len(times)]
    return min([*lows, *(event.time_ns for event in batch.events)], default=HIGHEST)


# ── replay ─────────────────────────────────────────────────────────────────────────────────────


class JournalReplay:
    """A `Replay` that reads the journals as it goes on."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self.records = sum(part.rows for part in parts)

    def __enter__(self) -> JournalReplay:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.close()

    def __iter__(self) -> Iterator[list[Batch]]:
        yield [part.introduction for part in self._parts]
        for part in self._parts:
            part.begin()
        for until_ns in self._cuts():
            # Nothing here keeps the yielded batches in memory while more is read.
            yield [batch for part in self._parts if (batch := part.until(until_ns)).records]

    def tally(self, until: Mapping[JournalId, int] | None = None) -> dict[JournalId, Tally]:
        tallies = {part.introduction.origin.journal: Tally() for part in self._parts}
        for batch in (batch for stretch in self for batch in stretch):
            name = batch.origin.journal
            times = np.concatenate(
                [
                    _numbers(batch.points.time_ns),
                    _numbers(batch.spans.time_ns),
                    np.array([event.time_ns for event in batch.events], np.int64),
                ]
            )
            times = times if until is None else times[times <= until[name]]
            if len(times):
                tally = tallies[name]
                newest, total = max(tally.newest_ns, int(times.max())), sum(times.tolist())
                tallies[name] = Tally(tally.rows + len(times), newest, tally.total_ns + total)
        return tallies

    def _cuts(self) -> Iterator[int]:
        """Times at which to cut: between two of them lies about what fits in memory."""
        rows = 0
        for low_ns, more in sorted(low for part in self._parts for low in part.lows):
            if rows >= STRETCH_ROWS:
                yield low_ns
                rows = 0
            rows += more
        yield HIGHEST + 1


class _Part:
    """The selected records of one journal, read up to a given time."""

    def __init__(
        self,
        introduction: Batch,
        reader: JournalReader,
        stretches: Sequence[Stretch],
        kinds: Sequence[str],
        since_ns: int,
    ) -> None:
        self.introduction = introduction
        self.rows = sum(stretch.rows for stretch in stretches)
        self._reader = reader
        self._stretches = stretches
        self._kinds = frozenset(kinds)
        self._since_ns = since_ns
        defined = introduction.definitions
        self._scopes = {d.id for d in defined if isinstance(d, RunScope)}
        self._names = _Chosen(d.id for d in defined if isinstance(d, SpanName))
        self._series = _Chosen(d.id for d in defined if isinstance(d, Series))
        # A later stretch may hold older records: take the lowest time from each stretch on.
        lows = (stretch.low_ns for stretch in reversed(stretches))
        self._lows = list(accumulate(lows, min))[::-1]
        self.begin()

    @property
    def lows(self) -> Iterator[tuple[int, int]]:
        """For each stretch: no record from it on is older than this; and how many rows it has."""
        rows = (stretch.rows for stretch in self._stretches)
        return zip(self._lows, rows, strict=True)

    def begin(self) -> None:
        self._next = 0
        self._held = Batch(self.introduction.origin, START, START)
        self._reader.seek(self._stretches[0].start if self._stretches else START)

    def close(self) -> None:
        self._reader.close()

    def until(self, time_ns: int) -> Batch:
        """All records that are older, in the order in which they were written."""
        batches = [self._held]
        while self._next < len(self._stretches) and self._lows[self._next] < time_ns:
            batches.append(self._wanted(self._read(self._stretches[self._next])))
            self._next += 1
        whole = _joined(batches)
        due, self._held = Batch(whole.origin, START, START), Batch(whole.origin, START, START)
        older, newer = _split(whole.spans.time_ns, time_ns)
        due.spans = _some_spans(whole.spans, older)
        self._held.spans = _some_spans(whole.spans, newer)
        older, newer = _split(whole.points.time_ns, time_ns)
        points = _some_points(whole.points, older)
        self._held.points = _some_points(whole.points, newer)
        # Sorted as an engine stores them: it keeps no order among points of one instant.
        order = in_order(
            np.zeros(len(points), np.int64), _numbers(points.time_ns),
            _numbers(points.value, np.float64),
        )  # fmt: skip
        due.points = points if order is None else _some_points(points, order)
        due.events = [event for event in whole.events if event.time_ns < time_ns]
        self._held.events = [event for event in whole.events if event.time_ns >= time_ns]
        return due

    def _read(self, stretch: Stretch) -> Batch:
        batch = self._reader.read(final=True, until=stretch.end)
        self._reader.close()  # there may be more journals than files that may be open
        if batch is None or not _is_of(batch, stretch):
            raise StoreDamaged(
                f"journal {self._reader.directory} changed while it was read; ask again"
            )
        return batch

    def _wanted(self, batch: Batch) -> Batch:
        since_ns, points, spans = self._since_ns, batch.points, batch.spans
        rows = self._series.rows(points.series)
        batch.points = points if rows is None else _some_points(points, rows)
        rows = self._names.rows(spans.name)
        batch.spans = spans if rows is None else _some_spans(spans, rows)
        batch.events = [
            e for e in batch.events if e.kind in self._kinds and e.scope in self._scopes
        ]
        if since_ns > LOWEST:
            batch.points = _some_points(batch.points, _split(batch.points.time_ns, since_ns)[1])
            batch.spans = _some_spans(batch.spans, _split(batch.spans.time_ns, since_ns)[1])
            batch.events = [e for e in batch.events if e.time_ns >= since_ns]
        return batch


def _is_of(batch: Batch, stretch: Stretch) -> bool:
    read, noted = (batch.start, batch.end), (stretch.start, stretch.end)
    return tuple(map(_place, read)) == tuple(map(_place, noted))


def _place(at: Position) -> Position:
    """A position before a segment's first record is the segment's beginning."""
    return position(at >> 32, max(at & 0xFFFFFFFF, HEADER_LENGTH))


class _Chosen:
    """Selected ids of a journal, which mostly are small and few."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = sorted(set(numbers))
        highest = max(self._numbers, default=0)
        self._table = None if highest >= _DENSE else np.zeros(highest + 2, bool)
        if self._table is not None:
            self._table[self._numbers] = True

    def rows(self, column: array[int]) -> Integers | None:
        """The rows of a column that hold a selected id; None if all do."""
        numbers = _numbers(column, np.uint32)
        if self._table is None:
            mine = np.isin(numbers, self._numbers)
        else:
            mine = self._table[np.minimum(numbers, len(self._table) - 1)]
        return None if mine.all() else np.flatnonzero(mine)


_Rows = slice | Integers
_ALL: Final = slice(None)
_DENSE: Final = 1 << 16


def _split(times: array[int], time_ns: int) -> tuple[_Rows, _Rows]:
    """The rows that are older than `time_ns`, and the others."""
    if time_ns > HIGHEST or not times:
        return _ALL, slice(0, 0)
    numbers = _numbers(times)
    if not (numbers[1:] < numbers[:-1]).any():
        at = int(np.searchsorted(numbers, time_ns))
        return (slice(0, at), slice(at, None)) if at < len(times) else (_ALL, slice(0, 0))
    older = numbers < time_ns
    return np.flatnonzero(older), np.flatnonzero(~older)


def _joined(batches: Sequence[Batch]) -> Batch:
    """All batches as one.  Changes one of the given batches."""
    whole = next((batch for batch in batches if batch.records), batches[0])
    for batch in batches:
        if batch is whole or not batch.records:
            continue
        for name in Points.__slots__:
            getattr(whole.points, name).extend(getattr(batch.points, name))
        for name in Spans.__slots__:
            getattr(whole.spans, name).extend(getattr(batch.spans, name))
        whole.events.extend(batch.events)
    return whole


def _some_points(points: Points, rows: _Rows) -> Points:
    return Points(
        _some(points.series, rows), _some(points.time_ns, rows),
        _some(points.step, rows), _some(points.value, rows),
    )  # fmt: skip


def _some_spans(spans: Spans, rows: _Rows) -> Spans:
    some = Spans()
    for name in Spans.__slots__:
        setattr(some, name, _some(getattr(spans, name), rows))
    return some


def _some(column: array[Any], rows: _Rows) -> array[Any]:
    if isinstance(rows, slice):
        return column if rows == _ALL else column[rows]
    chosen: array[Any] = array(column.typecode)
    chosen.frombytes(_numbers(column, column.typecode)[rows].tobytes())
    return chosen


def _numbers(column: array[Any], kind: Any = np.int64) -> Any:
    """An array view of the same memory."""
    return np.frombuffer(column, kind) if column else np.empty(0, kind)
