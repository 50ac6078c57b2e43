"""Reading a journal: while it is written, after its writer was killed, and when it is damaged.

A reader turns the bytes from one position on into a `Batch`.  It uses `pread` and never maps the
file.  So a file that is truncated or deleted under it returns an error and does not kill the
process.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NewerJournalError, SegmentError
from runwatch.files import Refused, journal_folder
from runwatch.identity import is_on
from runwatch.journal.columns import (
    PLAIN_SPAN,
    RUN,
    STEPS,
    Part,
    append_points,
    append_singly,
    append_spans,
    count_whole,
    cut,
    survey,
    unchecked,
)
from runwatch.journal.file_system import is_network_file_system
from runwatch.journal.segment import (
    CRC,
    DEFINE,
    EVENT,
    EVENT_HEAD,
    EVENT_REST,
    HEADER_LENGTH,
    KINDS,
    LONGEST_SEGMENT,
    MAX_RECORD,
    NOT_COUNTED,
    ORIGIN,
    POINT,
    POINT_LENGTH,
    POINTS,
    POINTS_HEAD,
    RECORD,
    SPAN,
    SPAN_LENGTH,
    STEP_BEGIN,
    STEP_BEGIN_WORDS,
    STEP_END,
    TEXT_HEAD,
    UNCHECKED,
    Header,
    definition_from_json,
    indexes_among,
    is_plain_step,
    origin_from_json,
    origin_from_name,
    points_body,
    segment_indexes,
    segment_name,
)
from runwatch.journal.steps import STEP_LENGTH, Expander
from runwatch.record import START, Batch, Event, Origin, Points, Position, position
from runwatch.record.door import (
    Rejected,
    definition_problem,
    edges_problem,
    event_problem,
    in_unicode,
    origin_problem,
)
from runwatch.record.losses import JournalGap

READ_BYTES: Final = 1 << 20
HEAD_BYTES: Final = HEADER_LENGTH + 4096
"""The start of a segment: its header and its ORIGIN record."""
_MOST_MARKS: Final = 1024
_PEEK_BYTES: Final = 16 << 10
HOLE_GRACE_SECONDS: Final = 2.0
NETWORK_GRACE_SECONDS: Final = 60.0
LISTED_SECONDS: Final = 1.0
_STEPS: Final = frozenset((STEP_BEGIN, STEP_END, STEPS))
_BETWEEN: Final = frozenset((PLAIN_SPAN, POINTS, POINT, STEP_END, STEPS))
"""Kinds of a `Part` that may lie between runs of points."""
_PLAIN_STEP: Final = CRC.pack(UNCHECKED)
_SOMETHING: Final = re.compile(rb"[^\0]")
_EVENT_TEXT: Final = 4 + EVENT_HEAD.size
_Place = tuple[int, int, int]
"""Where an event begins and ends, and its time."""

logger = logging.getLogger("runwatch.journal")
UNREADABLE: Final = (
    SegmentError,
    ValueError,
    TypeError,
    OverflowError,
    struct.error,
    RecursionError,
)
"""Errors that a record may cause although its crc is right."""


@dataclass(slots=True)
class _Open:
    fd: int
    header: Header
    offset: int

    def refresh(self) -> None:
        """Read again the header's `end` and heartbeat, which the writer updates in place."""
        try:
            self.header = Header.unpack(os.pread(self.fd, HEADER_LENGTH, 0), Path())
        except SegmentError:
            return  # damaged or truncated since we opened it: keep the header that we have

    def expander(self) -> Expander:
        if not all(self.header.step_ids):  # set before the first record that needs them
            self.refresh()
        return Expander(self.header)


def read_origin(directory: Path) -> Origin | None:
    """Who wrote the journal: from its oldest segment that has an origin, else from its name.

    None while there is no segment yet.  Raises OSError if there are segments but none is readable.
    """
    damaged = False
    problem: OSError | None = None
    for index in segments_in(directory):
        path = directory / segment_name(index)
        try:
            with open(open_segment(path), "rb") as file:
                head = file.read(HEAD_BYTES)
            if (origin := origin_in(head, path)) is not None:
                return origin
        except OSError as error:
            problem = problem or error
            continue
        except UNREADABLE:
            pass
        # All zeros is not damage: on a network file system the pages may arrive later.
        damaged = damaged or _SOMETHING.search(head) is not None
    if problem is not None and not damaged and not isinstance(problem, FileNotFoundError):
        raise problem
    return origin_from_name(directory.name) if damaged else None


def origin_in(head: bytes, path: Path) -> Origin | None:
    """Who wrote a segment, from its first `HEAD_BYTES`; None if they have no valid origin.

    Raises one of `UNREADABLE` if the bytes are not a segment's.
    """
    Header.unpack(head, path)
    record = _checked(head, HEADER_LENGTH)
    if record is None or record[6] != ORIGIN:
        return None
    origin = origin_from_json(_text(record))
    return None if origin_problem(origin) else origin


def segments_in(directory: Path) -> list[int]:
    """Indexes of the segments that exist, ascending; [] for a directory that is gone."""
    if not is_on():
        return segment_indexes(directory)
    try:
        with journal_folder(directory) as folder:
            return indexes_among(folder.names())
    except (FileNotFoundError, NotADirectoryError):
        return []


def open_segment(path: Path) -> int:
    """A descriptor for reading.  Checks the file, since the folder may hold anything."""
    with journal_folder(path.parent) as folder:
        return folder.open(path.name)


def count_records(path: Path, offset: int = HEADER_LENGTH) -> int:
    """How many valid records one segment has from `offset` on, without definitions."""
    with open(open_segment(path), "rb") as file:
        data = file.read(LONGEST_SEGMENT)
    at, count = max(offset, HEADER_LENGTH), 0
    while True:
        record = _checked(data, at)
        if record is not None:
            at += len(record)
            count += record[6] not in NOT_COUNTED
        elif (distance := _resync(data[at:])) is not None:
            at += distance
        else:
            return count


def _checked(data: bytes, at: int) -> bytes | None:
    """The whole record at `at`, or None if there is no valid record."""
    if at + 16 > len(data):
        return None
    crc, units, kind, _ = RECORD.unpack_from(data, at)
    end = at + units * 8
    if units < 2 or kind not in KINDS or end > len(data) or data[at + 7]:
        return None
    plain = crc == UNCHECKED and is_plain_step(data, at, kind, units)
    return data[at:end] if plain or zlib.crc32(data[at + 4 : end]) == crc else None


def _text(record: bytes) -> dict[str, Any]:
    _, _, _, length = TEXT_HEAD.unpack_from(record, 4)
    start = 4 + TEXT_HEAD.size
    fields: Any = json.loads(record[start : start + length])
    if not isinstance(fields, dict):
        raise SegmentError("the record's JSON is not an object")
    return fields


class JournalReader:
    """Follows one journal from a position on.  `read` returns what is there now."""

    def __init__(
        self, directory: Path, *, start: Position = START, clock: Clock = system_clock
    ) -> None:
        self.directory = directory
        self.origin: Origin | None = read_origin(directory)
        self.heartbeat_ns = 0
        """Wall time of the writer's last known heartbeat."""
        self.problem = ""
        """Why the last `read` had to stop, although there may be more."""
        self._clock = clock
        self._open: _Open | None = None
        self._said = ""
        self._listed_ns = -int(LISTED_SECONDS * 1e9)
        shared = is_network_file_system(directory)
        self._grace_ns = int((NETWORK_GRACE_SECONDS if shared else HOLE_GRACE_SECONDS) * 1e9)
        # Record counts before positions that we passed: a head may send us back to one of them.
        self._marks: dict[Position, int] = {}
        self.seek(start)

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open.fd)
            self._open = None

    def seek(self, start: Position) -> None:
        self.close()
        self.position = start
        self._hole: tuple[int, int] | None = None  # where we are stuck, and since when
        # How many records this journal has before `position`; None when we do not know.
        self._passed: int | None = 0 if start == START else self._marks.get(start)

    def read(
        self, *, final: bool = False, max_bytes: int = READ_BYTES, until: Position | None = None
    ) -> Batch | None:
        """The next stretch, or None when there is nothing new.

        `final` says that the writer is dead: unfinished records stay unfinished.  With `until`, a
        position that a reader has reached, this reads as if the journal ended there.
        """
        self.problem = ""
        try:
            self.origin = self.origin or read_origin(self.directory)
            if self.origin is None:
                return None
            batch = Batch(self.origin, self.position, self.position)
        except OSError as error:
            self._cannot(error)
            return None
        try:
            self._advance(batch, final, max_bytes, until)
        except OSError as error:
            self._cannot(error)  # the batch holds what was read before
        batch.end = self.position
        self._mark()
        return batch if batch.end != batch.start else None

    def _advance(self, batch: Batch, final: bool, max_bytes: int, until: Position | None) -> None:
        while (segment := self._segment(batch, final)) is not None:
            if until is not None and segment.header.index >= until >> 32:
                max_bytes = min(max_bytes, until - position(segment.header.index, segment.offset))
                if max_bytes <= 0:
                    return
            used = self._read_some(segment, batch, max_bytes)
            if used:
                segment.offset += used
                self.position = position(segment.header.index, segment.offset)
                return
            if not self._step_over(segment, batch, final):
                return

    def _cannot(self, error: OSError) -> None:
        self.problem = f"cannot read journal {self.directory.name}: {error}"
        self._say_once(self.problem)

    def _mark(self) -> None:
        if self._passed is not None:
            self._marks[self.position] = self._passed
            if len(self._marks) > _MOST_MARKS:
                del self._marks[next(iter(self._marks))]

    # ── which segment ─────────────────────────────────────────────────────────────────────────

    def _segment(self, batch: Batch, final: bool) -> _Open | None:
        while True:
            next_index, offset = self.position >> 32, self.position & 0xFFFFFFFF
            if self._open is not None and self._open.header.index == next_index:
                return self._open
            self.close()
            index = next_index
            try:
                fd = self._opened(index)
                if fd is None:
                    later = [i for i in segments_in(self.directory) if i >= next_index]
                    if not later:
                        return None
                    index = later[0]
                    fd = self._opened(index)
            except Refused as error:
                self._note(batch, f"{segment_name(index)} {error.strerror}", index)
                self.position = position(index + 1, 0)
                continue
            if fd is None:
                return None  # dropped between listing and opening; the next call sees the gap
            path = self.directory / segment_name(index)
            head = os.pread(fd, HEADER_LENGTH, 0)
            try:
                header = Header.unpack(head, path)
                if header.index != index:
                    raise SegmentError(f"{path} holds segment {header.index} of a journal")
            except NewerJournalError as error:
                os.close(fd)
                self._say_once(str(error))
                return None  # leave it for a newer Runwatch
            except SegmentError as error:
                os.close(fd)
                is_last = segments_in(self.directory)[-1:] == [index]
                unwritten = is_last and _SOMETHING.search(head) is None
                if not final and (unwritten or not self._hole_is_old()):
                    return None  # on a network file system its pages may still arrive
                self._note(batch, str(error), index)
                self.position = position(index + 1, 0)
                continue
            offset = max(offset, HEADER_LENGTH) if index == next_index else HEADER_LENGTH
            self._open = _Open(fd, header, offset)
            self._account(batch, self._open, dropped=index != next_index)
            self.position = position(index, offset)
            return self._open

    def _opened(self, index: int) -> int | None:
        """Open the segment without listing the folder first: it is there most of the time."""
        try:
            return open_segment(self.directory / segment_name(index))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _say_once(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            logger.warning("%s", problem)

    def _account(self, batch: Batch, segment: _Open, *, dropped: bool) -> None:
        """Compare the records that we passed with the writer's count before this segment."""
        before, passed = segment.header.records_before, self._passed
        if segment.offset > HEADER_LENGTH:
            if passed is None:
                self._passed = before + _count_records(segment)
            return
        if passed is not None and before > passed:
            reason = "dropped" if dropped else "damaged"
            self._note(batch, reason, segment.header.index, records=before - passed)
        elif passed is None and dropped:
            self._note(batch, "dropped", segment.header.index)
        self._passed = before

    def _step_over(self, segment: _Open, batch: Batch, final: bool) -> bool:
        """Nothing decodable at the offset: the segment's end, a hole, or just the live tail."""
        segment.refresh()
        header = segment.header
        beat = header.heartbeat_ns - header.mono_ns + header.wall_ns
        self.heartbeat_ns = max(self.heartbeat_ns, beat)
        complete = bool(header.end) or self._is_followed(header.index, final)
        if not complete and not final and not any(os.pread(segment.fd, 8, segment.offset)):
            return False  # the live tail, most of the time
        rest = os.pread(segment.fd, LONGEST_SEGMENT, segment.offset)
        if _checked(rest, 0) is not None:
            return True  # it arrived just now
        if header.end and segment.offset >= header.end:
            return self._go_on(header)
        distance = _resync(rest)
        if distance is None and not complete:
            return False  # the torn tail of a writer that was killed
        if not final and not self._hole_is_old():
            return False  # perhaps the page is still on its way from another host
        if distance is None:
            end = header.end if header.end <= header.length else 0
            if lost := max(len(rest.rstrip(b"\0")), end - segment.offset):
                self._note(batch, "damaged", header.index, size=lost)
            return self._go_on(header)
        self._note(batch, "damaged", header.index, size=distance)
        segment.offset += distance
        self.position = position(header.index, segment.offset)
        return True

    def _is_followed(self, index: int, final: bool) -> bool:
        """Whether there is a later segment.  Listing as another user costs more than the rest of an
        idle round, and a live writer sets `end` in the header first."""
        if is_on() and not final:
            now = self._clock.mono_ns()
            if now < self._listed_ns + LISTED_SECONDS * 1e9:
                return False
            self._listed_ns = now
        return segments_in(self.directory)[-1:] > [index]

    def _go_on(self, header: Header) -> bool:
        self.close()
        self.position = position(header.index + 1, 0)
        return True

    def _hole_is_old(self) -> bool:
        now = self._clock.mono_ns()
        if self._hole is None or self._hole[0] != self.position:
            self._hole = (self.position, now)
        return now - self._hole[1] >= self._grace_ns

    def _note(
        self, batch: Batch, reason: str, segment: int, *, records: int = 0, size: int = 0
    ) -> None:
        """Record every gap as an event.  A gap of unknown size counts as one record for now."""
        gap = JournalGap(reason, segment, records or None, size or None)
        batch.skipped_records += records or 1
        if self._passed is not None:
            self._passed += records or 1
        # A process defines its run first, with id 1.  So the gap belongs to that run.
        scope = 0 if batch.origin.role == "agent" else 1
        batch.events.append(Event(self._clock.wall_ns(), gap.KIND, gap.body(), scope=scope))

    def _set_aside(self, batch: Batch, refused: Rejected) -> None:
        """Report rejected records as gaps, one per cause.  They count as passed, like good ones."""
        refused.tell(batch, self._clock.wall_ns())

    # ── bytes to records ──────────────────────────────────────────────────────────────────────

    def _read_some(self, segment: _Open, batch: Batch, max_bytes: int) -> int:
        # Usually there is little or nothing new: do not copy a megabyte of zeros.
        max_bytes = max(max_bytes, RECORD.size)  # less would not show whether there is a record
        data = os.pread(segment.fd, min(max_bytes, _PEEK_BYTES), segment.offset)
        if not any(data[:8]):
            return 0
        if len(data) == _PEEK_BYTES and any(data[-8:]):
            data += os.pread(segment.fd, max_bytes - len(data), segment.offset + len(data))
        used = self._decode(data, segment, batch)
        if not used and len(data) < MAX_RECORD:  # a record larger than `data`, or a torn one
            used = self._decode(os.pread(segment.fd, MAX_RECORD, segment.offset), segment, batch)
        return used

    def _decode(self, data: bytes, segment: _Open, batch: Batch) -> int:
        """Decode whole records from the start of `data`; returns how many bytes they took."""
        parts = survey(data)
        kinds = {part[0] for part in parts}
        if not _STEPS.isdisjoint(kinds) and _PLAIN_STEP in data:
            # We copied while the writer stored: a step may have its last word but lack one before
            # it.  A step that had its last word then is complete now, so we read again.
            data = os.pread(segment.fd, parts[-1][2], segment.offset)
            if len(data) < parts[-1][2]:
                return 0  # truncated meanwhile
        block = unchecked(data, parts)
        whole = count_whole(block)
        if whole * POINT_LENGTH < len(block):
            parts, block = cut(parts, whole), block[: whole * POINT_LENGTH]
        if not parts:
            return 0
        before, had, refused = len(batch.points), _lengths(batch), Rejected()
        runs = block if _BETWEEN.isdisjoint(kinds) else None
        try:
            records = self._decode_parts(parts, data, runs, segment, batch, refused)
        except UNREADABLE:
            _cut_back(batch, had)
            refused = Rejected()
            records = self._decode_singly(parts, data, segment, batch, refused)
        if self._passed is not None:
            self._passed += len(batch.points) - before + records
        self._set_aside(batch, refused)
        return parts[-1][2]

    def _decode_singly(
        self, parts: list[Part], data: bytes, segment: _Open, batch: Batch, refused: Rejected
    ) -> int:
        """Decode record by record, and leave out only the records that cannot be decoded."""
        records = 0
        for part in _records(parts):
            had = _lengths(batch)
            try:
                records += self._decode_parts([part], data, None, segment, batch, refused)
            except UNREADABLE as error:
                _cut_back(batch, had)
                refused.add("record", f"cannot be read: {error}")
                records += 1
        return records

    def _decode_parts(
        self,
        parts: list[Part],
        data: bytes,
        points: bytes | None,
        segment: _Open,
        batch: Batch,
        refused: Rejected,
    ) -> int:
        """Returns how many records are not points.  `points` holds all runs, if they are known."""
        shift = segment.header.wall_ns - segment.header.mono_ns
        steps: Expander | None = None
        runs: list[bytes] = []
        spans: list[bytes] = []
        events: list[_Place] = []
        records = 0
        for kind, at, end, time_ns in parts:
            if kind == RUN:
                if points is None:
                    runs.append(data[at:end])
            elif kind in (PLAIN_SPAN, SPAN):
                spans.append(data[at : at + SPAN_LENGTH])
            elif kind == STEP_BEGIN:
                steps = steps or segment.expander()
                spans.append(steps.begin(data, at))
                records -= 1
            elif kind in (POINTS, POINT, STEP_END, STEPS):
                if runs:  # rows keep the order of their records
                    append_points(b"".join(runs), shift, batch.points)
                    runs.clear()
                if kind == STEP_END:
                    steps = steps or segment.expander()
                    records += len(batch.points)  # it counts once, as an edge
                    spans.append(steps.end(data, at, shift, batch.points))
                    records -= len(batch.points)
                elif kind == STEPS:
                    append_spans(b"".join(spans), shift, batch.spans)
                    records += len(spans)
                    spans.clear()
                    steps = steps or segment.expander()
                    records += len(batch.points) + (end - at) // STEP_LENGTH
                    steps.run(data[at:end], shift, batch.points, batch.spans)
                    records -= len(batch.points)
                elif kind == POINT:  # a newer writer's point, with more fields
                    append_singly(data[at : at + POINT_LENGTH], shift, batch.points)
                else:
                    records += 1 - _append_row(data[at:end], time_ns + shift, batch.points)
            elif kind == EVENT:
                events.append((at, end, time_ns + shift))
            elif kind == DEFINE:
                self._decode_definition(data[at:end], batch, refused)
            else:  # a newer writer's record kind: skipped
                records += kind != ORIGIN
        append_points(b"".join(runs) if points is None else points, shift, batch.points)
        append_spans(b"".join(spans), shift, batch.spans)
        if problem := edges_problem(batch.spans):
            raise SegmentError(problem)
        self._decode_events(data, events, batch, refused)
        return records + len(spans) + len(events)

    def _decode_definition(self, record: bytes, batch: Batch, refused: Rejected) -> None:
        try:
            definition = definition_from_json(_text(record))
        except UNREADABLE as error:
            refused.add("definition", f"cannot be read: {error}")
            return
        if problem := definition_problem(definition):
            refused.add("definition", problem)
        else:
            batch.definitions.append(in_unicode(definition))

    def _decode_events(
        self, data: bytes, places: list[_Place], batch: Batch, refused: Rejected
    ) -> None:
        try:
            events = _events(data, places)
        except UNREADABLE as error:
            if len(places) == 1:
                refused.add("event", f"cannot be read: {error}")
                return
            for place in places:
                self._decode_events(data, [place], batch, refused)
            return
        for event in events:
            if problem := event_problem(event):
                refused.add(event.kind, problem)
            else:
                batch.events.append(event)


def _records(parts: list[Part]) -> Iterator[Part]:
    """The parts, with runs split into single records."""
    for kind, at, end, time_ns in parts:
        if kind == RUN:
            for start in range(at, end, POINT_LENGTH):
                yield kind, start, start + POINT_LENGTH, time_ns
        elif kind == STEPS:
            for start in range(at, end, STEP_LENGTH):
                middle = start + STEP_BEGIN_WORDS.size
                yield STEP_BEGIN, start, middle, time_ns
                yield STEP_END, middle, start + STEP_LENGTH, time_ns
        else:
            yield kind, at, end, time_ns


def _lengths(batch: Batch) -> tuple[int, int, int, int]:
    return len(batch.definitions), len(batch.points), len(batch.spans), len(batch.events)


def _cut_back(batch: Batch, lengths: tuple[int, int, int, int]) -> None:
    """Cut the batch back to these lengths: a record that fails halfway leaves uneven columns."""
    points, spans = batch.points, batch.spans
    of_points: list[Any] = [points.series, points.time_ns, points.step, points.value]
    of_spans: list[Any] = [spans.name, spans.span, spans.edge, spans.time_ns, spans.step]
    together: list[list[Any]] = [[batch.definitions], of_points, of_spans, [batch.events]]
    for columns, length in zip(together, lengths, strict=True):
        for column in columns:
            del column[length:]


def _append_row(record: bytes, time_ns: int, points: Points) -> int:
    """Append a record of several points at one time; returns how many."""
    _, _, _, step, count = POINTS_HEAD.unpack_from(record, 4)
    row = points_body(count).unpack_from(record, 4)
    points.series.extend(row[5 : 5 + count])
    points.time_ns.extend([time_ns] * count)
    points.step.extend([step] * count)
    points.value.extend(row[5 + count :])
    return int(count)


def _count_records(segment: _Open) -> int:
    """How many records lie between the header and the offset, by their lengths alone."""
    length = min(segment.offset - HEADER_LENGTH, LONGEST_SEGMENT)
    data = os.pread(segment.fd, length, HEADER_LENGTH)
    at = count = 0
    while at + 16 <= len(data):
        _, units, kind, _ = RECORD.unpack_from(data, at)
        count += kind not in NOT_COUNTED
        at += max(units, 1) * 8
    return count


def _resync(data: bytes) -> int | None:
    """Distance to the next valid record, after the invalid one at 0."""
    at = 8
    while (match := _SOMETHING.search(data, at)) is not None:
        at = match.start() // 8 * 8
        if _checked(data, at) is not None:
            return at
        at += 8
    return None


def _events(data: bytes, places: list[_Place]) -> list[Event]:
    """Decode all events.  Their bodies are parsed as one JSON array: they are small and many."""
    heads = [EVENT_REST.unpack_from(data, at + RECORD.size) for at, _, _ in places]
    starts = [at + _EVENT_TEXT + head[2] for (at, _, _), head in zip(places, heads, strict=True)]
    bodies = [data[i:j].rstrip(b"\0") for i, (_, j, _) in zip(starts, places, strict=True)]
    values = json.loads((b"[%s]" % b",".join(bodies)).decode("utf-8", "surrogatepass"))
    if len(values) != len(places):
        raise ValueError("an event's body is not JSON")
    return [
        Event(time_ns, data[at + _EVENT_TEXT : start].decode(), body, step, scope)
        for (at, _, time_ns), start, (step, scope, _), body in zip(
            places, starts, heads, values, strict=True
        )
    ]
