"""Keeping a directory of journals within its budget.

Segments that a head has stored go first, then old ones whose writer is dead.  Only then do segments
go that nobody has stored, and their records are counted.  A live journal loses only stored segments
(its writer has its own budget).  Its newest segment is never touched.  No file is ever truncated.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import SegmentError
from runwatch.files import Folder, journal_folder, shelf
from runwatch.journal.liveness import is_alive
from runwatch.journal.reader import JournalReader, count_records, open_segment, read_origin
from runwatch.journal.segment import (
    HEADER_LENGTH,
    MADE_IN_TURN,
    PREPARED,
    Header,
    indexes_among,
    journal_directories,
    origin_from_name,
    segment_name,
)
from runwatch.journal.stored import note_stored
from runwatch.record import START, JournalId, Origin, Position

SILENT_SECONDS: Final = 24 * 3600.0
"""A writer that we cannot check (on another host) counts as dead after this much silence."""
logger = logging.getLogger("runwatch.journal")


@dataclass(slots=True)
class Report:
    """What one round did; `bytes_left` is the size of all journals after it."""

    bytes_freed: int = 0
    bytes_left: int = 0
    segments: int = 0
    journals: int = 0
    records_dropped: int = 0
    """Records that no head had stored."""


@dataclass(slots=True)
class _Segment:
    path: Path
    index: int
    size: int
    written_ns: int


@dataclass(slots=True)
class _Journal:
    directory: Path
    dead: bool
    is_surely_dead: bool
    """The kernel says so.  A writer that was only silent for long may come back."""
    segments: list[_Segment]
    changed_ns: int
    """When a file was last created or deleted."""
    files_ns: int
    """When anything in the directory was last written."""
    acknowledged: Position = START
    bytes: int = 0
    """The size of all its files."""
    is_known: bool = False
    """It was dead in an earlier round and has not changed since."""

    def stored(self) -> list[_Segment]:
        """Complete segments that the head has.  Never the newest, which may still be written."""
        reached = self.acknowledged >> 32
        return [s for s in self.segments[:-1] if s.index < reached]

    def is_all_stored(self) -> bool:
        if not self.segments:
            return True
        if self.acknowledged == START:
            return False
        try:
            reader = JournalReader(self.directory, start=self.acknowledged)
        except OSError:
            return False
        try:
            while (batch := reader.read(final=True)) is not None:
                if batch.records:
                    return False
            return not reader.problem
        finally:
            reader.close()


class Memory:
    """Remembers journals of dead writers: there may be thousands, and they do not change."""

    def __init__(self) -> None:
        self._dead: dict[str, _Journal] = {}
        self._said: set[str] = set()

    def set_aside(self, directory: Path, error: OSError) -> None:
        """Warn once: the journal takes up space, and we cannot tell whose and how much."""
        if directory.name not in self._said:
            self._said.add(directory.name)
            logger.warning("cannot tidy up journal %r: %s", directory.name, error)

    def recall(self, directory: Path) -> _Journal | None:
        journal = self._dead.get(directory.name)
        if journal is None:
            return None
        try:
            changed_ns = directory.stat().st_mtime_ns
        except OSError:
            return None
        journal.is_known = changed_ns == journal.changed_ns
        return journal if journal.is_known else None

    def keep(self, journals: Iterable[_Journal]) -> None:
        self._dead = {j.directory.name: j for j in journals if j.is_surely_dead}


def enforce(
    root: Path,
    *,
    acknowledged: Mapping[JournalId, Position],
    live: Collection[JournalId],
    budget_bytes: int,
    keep_acknowledged_seconds: float,
    clock: Clock = system_clock,
    alive: Callable[[Origin], bool | None] = is_alive,
    memory: Memory | None = None,
) -> Report:
    """One round over `<root>/journals`.

    `acknowledged` says how far a head has stored each journal ({} without a head).  Journals in
    `live` are live.  The others are checked with `alive`, since one may have just begun.  Pass the
    same `memory` in every round: then journals of dead writers cost next to nothing.
    """
    now, memory = clock.wall_ns(), memory or Memory()
    journals: list[_Journal] = []
    for directory in journal_directories(root):
        try:
            journal = memory.recall(directory) or _look(directory, live, alive, now)
        except OSError as error:
            memory.set_aside(directory, error)
            continue
        if journal is None:
            continue
        journal.acknowledged = acknowledged.get(JournalId(directory.name), START)
        if not journal.dead and journal.acknowledged != START:
            note_stored(journal.directory, journal.acknowledged)
        if not journal.is_known:
            journal.bytes = _bytes(directory)
        journals.append(journal)
    tidying = _Tidying(journals, budget_bytes)
    before = now - int(keep_acknowledged_seconds * 1e9)
    tidying.remove_unused()
    tidying.remove_stored(before)
    tidying.remove_ended(before)
    if tidying.is_over:
        tidying.remove_stored(None)
        tidying.remove_ended(None)
        tidying.drop_unseen()
    memory.keep(tidying.journals)
    return tidying.report


class _Tidying:
    def __init__(self, journals: list[_Journal], budget_bytes: int) -> None:
        self.journals = journals
        self.budget_bytes = budget_bytes
        self.report = Report(bytes_left=sum(journal.bytes for journal in journals))

    @property
    def is_over(self) -> bool:
        return self.report.bytes_left > self.budget_bytes

    def remove_unused(self) -> None:
        """Remove segments that a dead writer had prepared and never used."""
        for journal in self.journals:
            if journal.dead and not journal.is_known:
                for name in (PREPARED, MADE_IN_TURN):
                    self._unlink(journal.directory, name)

    def remove_stored(self, before_ns: int | None) -> None:
        """Stored segments last written before `before_ns`; None: any, while over the budget."""
        stored = [(s.written_ns, s.index, j, s) for j in self.journals for s in j.stored()]
        for written_ns, _, journal, segment in sorted(stored, key=lambda row: row[:2]):
            if self.is_over if before_ns is None else written_ns < before_ns:
                self._remove(journal, segment)

    def remove_ended(self, before_ns: int | None) -> None:
        """Remove journals of dead writers that are stored to their end."""
        for journal in sorted(self.journals, key=lambda j: j.files_ns):
            due = self.is_over if before_ns is None else journal.files_ns < before_ns
            if due and journal.dead and journal.is_all_stored():
                self._remove_directory(journal)

    def drop_unseen(self) -> None:
        """Drop dead writers' segments that no head has, oldest first, until within the budget."""
        unseen = [
            (s.written_ns, s.index, j, s) for j in self.journals if j.dead for s in j.segments
        ]
        for _, _, journal, segment in sorted(unseen, key=lambda row: row[:2]):
            if not self.is_over:
                return
            records = _records_unseen(journal, segment)
            if self._remove(journal, segment):
                self.report.records_dropped += records
            if not journal.segments:
                self._remove_directory(journal)

    def _remove(self, journal: _Journal, segment: _Segment) -> bool:
        if not self._unlink(journal.directory, segment.path.name):
            return False
        journal.segments.remove(segment)
        self.report.segments += 1
        return True

    def _remove_directory(self, journal: _Journal) -> None:
        for segment in list(journal.segments):
            self._remove(journal, segment)
        for name, _ in _files(journal.directory):
            self._unlink(journal.directory, name)
        try:
            with shelf(journal.directory.parent.parent, journal.directory.parent.name) as journals:
                journals.remove_folder(journal.directory.name)
        except OSError:
            return  # it holds something that is not ours or cannot be deleted: it stays
        self.journals.remove(journal)
        self.report.journals += 1

    def _unlink(self, directory: Path, name: str) -> bool:
        try:
            with journal_folder(directory) as folder:
                size = folder.stat(name).st_size
                folder.remove(name)
        except OSError:
            return False
        self.report.bytes_freed += size
        self.report.bytes_left -= size
        return True


def _look(
    directory: Path,
    live: Collection[JournalId],
    alive: Callable[[Origin], bool | None],
    now: int,
) -> _Journal | None:
    """None for a directory that vanished meanwhile.  Raises OSError if it cannot be read."""
    name = JournalId(directory.name)
    origin = read_origin(directory) or origin_from_name(name)
    try:
        folder = journal_folder(directory)
    except FileNotFoundError:
        return None
    with folder:
        changed_ns = os.fstat(folder.fd).st_mtime_ns
        segments = list(_segments(folder, directory))
    written_ns = max([changed_ns, *(s.written_ns for s in segments)])
    answer = True if name in live else alive(origin)
    silent = answer is None and now - _heard_ns(segments, written_ns) > SILENT_SECONDS * 1e9
    gone = answer is False
    return _Journal(directory, gone or silent, gone, segments, changed_ns, written_ns)


def _segments(folder: Folder, directory: Path) -> Iterator[_Segment]:
    for index in indexes_among(folder.names()):
        with contextlib.suppress(FileNotFoundError):  # its writer dropped it just now
            status = folder.stat(segment_name(index))
            path = directory / segment_name(index)
            yield _Segment(path, index, status.st_size, status.st_mtime_ns)


def _heard_ns(segments: list[_Segment], written_ns: int) -> int:
    """When the writer was last known to be alive."""
    header = _header(segments[-1].path) if segments else None
    if header is None:
        return written_ns
    return max(written_ns, header.heartbeat_ns - header.mono_ns + header.wall_ns)


def _records_unseen(journal: _Journal, segment: _Segment) -> int:
    """How many records of the segment no head has stored."""
    reached = journal.acknowledged >> 32
    if segment.index < reached:
        return 0
    following = next((s for s in journal.segments if s.index == segment.index + 1), None)
    if segment.index > reached or journal.acknowledged & 0xFFFFFFFF <= HEADER_LENGTH:
        header = _header(segment.path)
        next_header = _header(following.path) if following is not None else None
        if header is not None and next_header is not None:
            return max(0, next_header.records_before - header.records_before)
    try:
        offset = journal.acknowledged & 0xFFFFFFFF if segment.index == reached else 0
        return count_records(segment.path, offset)
    except OSError:
        return 0


def _header(path: Path) -> Header | None:
    try:
        with open(open_segment(path), "rb") as file:
            return Header.unpack(file.read(HEADER_LENGTH), path)
    except (OSError, SegmentError):
        return None


def _files(directory: Path) -> Iterator[tuple[str, int]]:
    """Names and sizes of its regular files."""
    try:
        with journal_folder(directory) as folder:
            about = [(name, status) for name in folder.names() if (status := _about(folder, name))]
    except OSError:
        return
    yield from ((name, status.st_size) for name, status in about if stat.S_ISREG(status.st_mode))


def _about(folder: Folder, name: str) -> os.stat_result | None:
    try:
        return folder.stat(name)
    except OSError:
        return None  # its writer dropped it just now


def _bytes(directory: Path) -> int:
    return sum(size for _, size in _files(directory))
