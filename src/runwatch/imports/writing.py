"""Writes what a log says as the journals of a run: one for each rank, continued at each import."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch._version import __version__
from runwatch.clock import StillClock
from runwatch.errors import SegmentError, UsageError
from runwatch.imports.items import (
    KINDS,
    MAIN,
    Begun,
    Ended,
    Item,
    Labels,
    Lane,
    LeftOut,
    Line,
    Point,
    Reached,
    Settings,
    Source,
    Text,
    is_time,
)
from runwatch.imports.ledger import Book, Deliver, Ledger, Shelf, lane_key
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, Position, RunId, RunScope
from runwatch.record.checks import LONGEST_NAME, LONGEST_TEXT
from runwatch.record.console import Console
from runwatch.record.life import Config, LogText, RunEnd, RunStart

HOST: Final = "imported"
BOOT: Final = "imported:"
"""Prefix of `boot`: no process writes such a journal."""
PART_POINTS: Final = 500_000
MOST_LANES: Final = 512
_NO_BUDGET: Final = 1 << 60
_LARGEST_BODY: Final = 256 << 10
_MOST_LINES: Final = 200

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


@dataclass(slots=True)
class Tally:
    """What an import added."""

    points: int = 0
    texts: int = 0
    lines: int = 0
    settings: int = 0
    metrics: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first_ns: int | None = None
    last_ns: int | None = None

    def see(self, time_ns: int) -> None:
        self.first_ns = time_ns if self.first_ns is None else min(self.first_ns, time_ns)
        self.last_ns = time_ns if self.last_ns is None else max(self.last_ns, time_ns)

    @property
    def is_empty(self) -> bool:
        return not (self.points or self.texts or self.lines or self.settings)


def count(source: Source, ledger: Ledger | None, progress: Progress) -> Tally:
    """What an import would add, without doing it."""
    tally, metrics = Tally(), set()
    for item in source.read(ledger.marks if ledger is not None else {}):
        if isinstance(item, Reached):
            progress(item.read_bytes)
        elif isinstance(item, Point):
            if is_time(item.time_ns):
                tally.points += 1
                tally.see(item.time_ns)
                metrics.add(item.metric)
            else:
                tally.left_out["points without a valid time"] += 1
        else:
            _count_other(tally, item)
    tally.metrics = len(metrics)
    return tally


def _count_other(tally: Tally, item: Item) -> None:
    if isinstance(item, LeftOut):
        tally.left_out[item.what] += item.times
    elif isinstance(item, Text):
        tally.texts += 1
    elif isinstance(item, Line):
        tally.lines += 1
    elif isinstance(item, Settings):
        tally.settings += bool(item.values)


def write(
    source: Source, shelf: Shelf, ledger: Ledger, deliver: Deliver, progress: Progress
) -> Tally:
    """Import what is new.  The caller has locked the shelf and finished what was left in it."""
    tally = Tally()
    pen = _Pen(source, shelf, ledger, tally)
    try:
        for item in source.read(ledger.marks):
            if not isinstance(item, Reached):
                pen.put(item)
                continue
            pen.reached(item)
            progress(item.read_bytes)
            if pen.is_full:
                pen.commit(deliver)
        pen.end()
        pen.commit(deliver)
    finally:
        pen.drop()
    return tally


class _Pen:
    """The part that is being written."""

    def __init__(self, source: Source, shelf: Shelf, ledger: Ledger, tally: Tally) -> None:
        self._source, self._shelf, self._ledger, self._tally = source, shelf, ledger, tally
        self._lanes: dict[Lane, _Journal] = {}
        self._marks = dict(ledger.marks)
        self._begun = Begun(ledger.began_ns) if ledger.began_ns is not None else None
        self._end = ledger.end
        self._points = 0
        self._waiting: list[Settings] = []
        """Settings that came before any time was known."""

    @property
    def is_full(self) -> bool:
        return self._points >= PART_POINTS

    def reached(self, reached: Reached) -> None:
        self._marks[reached.stream] = reached.mark

    def put(self, item: Item) -> None:
        if isinstance(item, Point):
            self._point(item)
        elif isinstance(item, Text):
            if self._has_time(item.time_ns, "texts"):
                self._journal(MAIN, item.time_ns).text(item, self._tally)
        elif isinstance(item, Line):
            if self._has_time(item.time_ns, "lines"):
                self._journal(MAIN, item.time_ns).line(item)
                self._tally.lines += 1
        elif isinstance(item, Settings):
            self._settings(item)
        elif isinstance(item, LeftOut):
            self._tally.left_out[item.what] += item.times
        elif isinstance(item, Begun):
            if self._begun is None:
                self._begun = item
        elif isinstance(item, Ended):
            self._end = item._asdict()

    def _point(self, point: Point) -> None:
        if not self._has_time(point.time_ns, "points"):
            return
        if not self._journal(point.lane, point.time_ns).point(point):
            self._tally.left_out["points of metrics beyond what a run can have"] += 1
            return
        self._points += 1
        self._tally.points += 1
        self._tally.see(point.time_ns)

    def _has_time(self, time_ns: int, what: str) -> bool:
        if is_time(time_ns):
            return True
        self._tally.left_out[f"{what} without a valid time"] += 1
        return False

    def _settings(self, settings: Settings) -> None:
        if not settings.values:
            return
        if settings.time_ns is None and self._begun is None and MAIN not in self._lanes:
            self._waiting.append(settings)
            return
        time_ns = settings.time_ns if settings.time_ns is not None else self._start_ns(0)
        self._journal(MAIN, time_ns).settings(settings, time_ns, self._tally)

    def _start_ns(self, otherwise_ns: int) -> int:
        return self._begun.time_ns if self._begun is not None else otherwise_ns

    def _journal(self, lane: Lane, time_ns: int) -> _Journal:
        journal = self._lanes.get(lane)
        if journal is None:
            journal = self._lanes[lane] = self._open(lane, time_ns)
            waiting, self._waiting = self._waiting, []
            for settings in waiting:
                journal.settings(settings, journal.book.start_ns, self._tally)
        return journal

    def _open(self, lane: Lane, time_ns: int) -> _Journal:
        if len(self._lanes) >= MOST_LANES:
            raise UsageError(f"{self._source.path} has more than {MOST_LANES} ranks")
        ledger, key = self._ledger, lane_key(lane)
        book = ledger.books.get(key)
        is_new = book is None
        if book is None:
            start_ns = self._start_ns(time_ns) if lane == MAIN else time_ns
            salt = f"{_salt(self._shelf)}-{len(ledger.books)}"
            book = ledger.books[key] = Book(new_journal_id(HOST, 0, start_ns, salt), start_ns)
        folder = self._shelf.part(ledger.parts + 1)
        journal = _Journal(folder, book, lane, ledger)
        if is_new or ledger.told_end is not None:
            # A run that had ended and goes on begins again.
            journal.start(self._begun or Begun(book.start_ns), time_ns, is_new=is_new)
            ledger.told_end = None
        return journal

    # ── the end of a part ──────────────────────────────────────────────────────────────────────

    def end(self) -> None:
        """The log has been read to its end: say how the run ended, if the log does."""
        told = self._end
        if told is None or not self._lanes and told == self._ledger.told_end:
            return
        self._journal(MAIN, self._start_ns(0)).end(told, KINDS[self._source.kind])
        self._ledger.told_end = told

    def commit(self, deliver: Deliver) -> None:
        ledger = self._ledger
        for journal in self._lanes.values():
            if not journal.has_ended:
                # An import that is cut short leaves no rank that seems to be lost.
                journal.end(None, KINDS[self._source.kind])
            journal.close()
        is_changed = bool(self._lanes) or self._marks != ledger.marks
        if not is_changed:
            return
        ledger.marks, ledger.points = dict(self._marks), ledger.points + self._points
        ledger.began_ns = self._begun.time_ns if self._begun is not None else None
        ledger.end, ledger.path = self._end, str(self._source.path)
        self._tally.metrics = sum(len(book.series) for book in ledger.books.values())
        if not self._lanes:
            if ledger.books:  # a log that holds nothing yet is no run
                self._shelf.write(ledger)
            return
        ledger.parts += 1
        self._shelf.write(ledger)
        self._lanes, self._points = {}, 0
        self._shelf.finish(ledger, deliver)

    def drop(self) -> None:
        for journal in self._lanes.values():
            with suppress(OSError):
                journal.writer.close()


class _Journal:
    """One rank's journal in a part."""

    def __init__(self, folder: Path, book: Book, lane: Lane, ledger: Ledger) -> None:
        self.book = book
        origin = Origin(
            book.journal, HOST, 0, book.start_ns, BOOT + book.journal, version=__version__
        )
        try:
            self.writer = JournalWriter(
                folder,
                origin,
                budget_bytes=_NO_BUDGET,
                clock=StillClock(book.start_ns),
                first_segment=book.next_segment,
                records_before=book.records,
            )
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
        self._scope = self.writer.scope(
            RunScope(
                0,
                RunId(ledger.run),
                ledger.name,
                lane.rank,
                attempt_key=lane.attempt,
                group=ledger.group,
            )
        )
        self._rank, self._ledger, self._attempt = lane.rank, ledger, lane.attempt
        self._series: dict[tuple[str, str, Labels], int] = {}
        for metric, device, labels in book.series:
            self._define(metric, device, tuple((key, value) for key, value in labels))
        self._lines: list[Line] = []
        self.has_ended = False
        """Whether it says how its rank ended."""

    def start(self, begun: Begun, time_ns: int, *, is_new: bool) -> None:
        ledger = self._ledger
        start = RunStart(
            run=ledger.run,
            name=ledger.name,
            group=ledger.group,
            rank=self._rank,
            attempt_key=self._attempt,
            argv=begun.argv,
            cwd=begun.cwd,
            user=begun.user[:LONGEST_NAME],
            imported=True,
        )
        at_ns = self.book.start_ns if is_new else max(time_ns, self.book.last_ns + 1)
        self._see(at_ns)
        self.writer.tell(start, scope=self._scope, mono_ns=at_ns)

    def point(self, point: Point) -> bool:
        """False: there are too many metrics."""
        key = (point.metric, point.device, point.labels)
        series = self._series.get(key)
        if series is None:
            series = self._new_series(*key)
        if not series:
            return False
        self._see(point.time_ns)
        self.writer.points((series,), (point.value,), point.step, point.time_ns)
        return True

    def _new_series(self, metric: str, device: str, labels: Labels) -> int:
        try:
            series = self._define(metric, device, labels)
        except SegmentError:
            self._series[metric, device, labels] = 0
            return 0
        self.book.series.append((metric, device, [list(label) for label in labels]))
        return series

    def _define(self, metric: str, device: str, labels: Labels) -> int:
        series = self.writer.series(
            metric[:LONGEST_TEXT] or "value", scope=self._scope, device=device, labels=dict(labels)
        )
        self._series[metric, device, labels] = series
        return series

    def _see(self, time_ns: int) -> None:
        if time_ns > self.book.last_ns:
            self.book.last_ns = time_ns

    def text(self, text: Text, tally: Tally) -> None:
        value = text.value
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            value = value[:LONGEST_TEXT]
            tally.left_out["ends of texts of more than 64 KiB"] += 1
        elif not isinstance(value, str) and len(json.dumps(value, default=str)) > _LARGEST_BODY:
            tally.left_out["values of more than 256 KiB"] += 1
            return
        self._see(text.time_ns)
        told = LogText(text.name[:LONGEST_TEXT], value)
        self.writer.tell(told, text.step, self._scope, text.time_ns)
        tally.texts += 1

    def settings(self, settings: Settings, time_ns: int, tally: Tally) -> None:
        for values in _small_enough(dict(settings.values), tally):
            self.writer.tell(
                Config(settings.part, values), scope=self._scope, mono_ns=max(time_ns, 0)
            )
            tally.settings += 1

    def line(self, line: Line) -> None:
        last = self._lines[-1] if self._lines else line
        if last.stream != line.stream or len(self._lines) >= _MOST_LINES:
            self._write_lines()
        self._lines.append(line)

    def _write_lines(self) -> None:
        if not self._lines:
            return
        first_ns = self._lines[0].time_ns
        lines = tuple(line.text[:LONGEST_TEXT] for line in self._lines)
        after = tuple(max(line.time_ns - first_ns, 0) // 1_000_000 for line in self._lines)
        stream = self._lines[0].stream
        self._see(max(line.time_ns for line in self._lines))
        self._lines = []
        self.writer.tell(Console(stream, lines, after), scope=self._scope, mono_ns=first_ns)

    def end(self, told: dict[str, Any] | None, kind: str) -> None:
        self.has_ended = True
        self._write_lines()
        last_ns = max(self.book.last_ns, self.book.start_ns)
        if told is None:
            # Nobody could call `finish`: the newest word counts, should the log go on.
            reason = f"imported from {kind}, which does not say how the run ended"
            end = RunEnd("completed", reason=reason, by_hooks=True)
        else:
            last_ns = max(last_ns, told["time_ns"] or 0)
            end = RunEnd(
                told["status"],
                explicit=True,
                reason=told["reason"] or f"imported from {kind}",
                exit_code=told["exit_code"],
            )
        self._see(last_ns)
        self.writer.tell(end, scope=self._scope, mono_ns=last_ns)

    def close(self) -> None:
        self._write_lines()
        self.writer.close()
        if self.writer.lost_records or self.writer.dropped_records:
            raise UsageError(f"no room to write to {self.writer.directory}: the disk is full")
        self.book.records = self.writer.records
        self.book.next_segment = (self.writer.position >> 32) + 1
        for segment in self.writer.directory.glob("*.seg"):
            with segment.open("rb") as file:
                os.fsync(file.fileno())


def _small_enough(values: dict[str, Any], tally: Tally) -> Iterator[dict[str, Any]]:
    """In pieces that a record can hold."""
    if len(json.dumps(values, default=str)) <= _LARGEST_BODY:
        yield values
        return
    for key, value in values.items():
        if len(json.dumps(value, default=str)) <= _LARGEST_BODY:
            yield {key: value}
        else:
            tally.left_out["settings of more than 256 KiB"] += 1


def _salt(shelf: Shelf) -> str:
    return shelf.folder.name[:16]


def end_of(directory: Path) -> Position:
    """The position behind a journal's last segment."""
    indexes = sorted(int(path.stem) for path in directory.glob("*.seg"))
    reader = JournalReader(directory, start=Position((indexes or [0])[0] << 32))
    try:
        while reader.read(final=True) is not None:
            pass
        return reader.position
    finally:
        reader.close()


def ends_in(part: Path) -> dict[JournalId, Position]:
    return {JournalId(each.name): end_of(each) for each in (part / "journals").iterdir()}
