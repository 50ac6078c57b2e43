"""Reading a journal: while it is written, after its writer was killed, and when it is damaged.

A reader turns the bytes from one position on into a `Batch`.  It reads with `pread`, never maps,
so a file that is truncated or deleted under it costs an error return, not the process.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import SegmentError
from runwatch.journal.segment import (
    DEFINE,
    EVENT,
    EVENT_HEAD,
    HEADER_LENGTH,
    KINDS,
    ORIGIN,
    POINT,
    POINT_BODY,
    POINTS,
    POINTS_HEAD,
    RECORD,
    SPAN,
    SPAN_BODY,
    TEXT_HEAD,
    Header,
    definition_from_json,
    origin_from_json,
    points_body,
    segment_indexes,
    segment_name,
)
from runwatch.record import START, Batch, Event, Origin, Position, position

READ_BYTES: Final = 1 << 20
HOLE_GRACE_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Open:
    fd: int
    header: Header
    offset: int


def read_origin(directory: Path) -> Origin | None:
    """Who wrote the journal, from its oldest segment that can be read; None if none can."""
    for index in segment_indexes(directory):
        path = directory / segment_name(index)
        try:
            with path.open("rb") as file:
                head = file.read(HEADER_LENGTH + 4096)
            Header.unpack(head, path)
        except (OSError, SegmentError):
            continue
        record = _checked(head, HEADER_LENGTH)
        if record is not None and record[6] == ORIGIN:
            return origin_from_json(_text(record))
    return None


def _checked(data: bytes, at: int) -> bytes | None:
    """The whole record at `at`, or None if there is none that checks out."""
    if at + 16 > len(data):
        return None
    crc, units, kind, _ = RECORD.unpack_from(data, at)
    end = at + units * 8
    if units < 2 or kind not in KINDS or end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
        return None
    return data[at:end]


def _text(record: bytes) -> dict[str, Any]:
    _, _, _, length = TEXT_HEAD.unpack_from(record, 4)
    start = 4 + TEXT_HEAD.size
    fields: dict[str, Any] = json.loads(record[start : start + length])
    return fields


class JournalReader:
    """Follows one journal from a position on.  `read` gives what is there now."""

    def __init__(
        self, directory: Path, *, start: Position = START, clock: Clock = system_clock
    ) -> None:
        self.directory = directory
        self.origin: Origin | None = read_origin(directory)
        self.position = start
        self.heartbeat_ns = 0
        """Wall time at which the writer was last known to live."""
        self._clock = clock
        self._open: _Open | None = None
        self._hole: tuple[int, int] | None = None  # where we are stuck, and since when

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open.fd)
            self._open = None

    def seek(self, start: Position) -> None:
        self.close()
        self.position = start
        self._hole = None

    def read(self, *, final: bool = False, max_bytes: int = READ_BYTES) -> Batch | None:
        """The next stretch, or None when there is nothing new.

        `final` says that the writer is dead: what looks unfinished will stay so.
        """
        if self.origin is None:
            self.origin = read_origin(self.directory)
            if self.origin is None:
                return None
        batch = Batch(self.origin, self.position, self.position)
        while True:
            segment = self._segment(batch)
            if segment is None:
                break
            data = os.pread(segment.fd, max_bytes, segment.offset)
            used = self._decode(data, segment, batch)
            segment.offset += used
            self.position = position(segment.header.index, segment.offset)
            if used or batch.records >= 1:
                self._hole = None
            if used:
                break
            if not self._step_over(segment, batch, final):
                break
        batch.end = self.position
        return batch if batch.end != batch.start else None

    # ── which segment ─────────────────────────────────────────────────────────────────────────

    def _segment(self, batch: Batch) -> _Open | None:
        index, offset = self.position >> 32, self.position & 0xFFFFFFFF
        if self._open is not None and self._open.header.index == index:
            return self._open
        self.close()
        existing = segment_indexes(self.directory)
        later = [i for i in existing if i >= index]
        if not later:
            return None
        if later[0] != index:
            self._note(batch, "dropped", later[0], records=None)
            index, offset = later[0], 0
        path = self.directory / segment_name(index)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None  # dropped between listing and opening; the next call sees the gap
        try:
            header = Header.unpack(os.pread(fd, HEADER_LENGTH, 0), path)
        except SegmentError as error:
            os.close(fd)
            self._note(batch, str(error), index + 1, records=None)
            self.position = position(index + 1, 0)
            return self._segment(batch) if len(later) > 1 else None
        self._open = _Open(fd, header, max(offset, HEADER_LENGTH))
        self.position = position(index, self._open.offset)
        return self._open

    def _step_over(self, segment: _Open, batch: Batch, final: bool) -> bool:
        """Nothing decodable at the offset: end of the segment, a hole, or simply the live tail."""
        segment.header = Header.unpack(
            os.pread(segment.fd, HEADER_LENGTH, 0), self.directory / str(segment.header.index)
        )
        header = segment.header
        beat = header.heartbeat_ns - header.mono_ns + header.wall_ns
        self.heartbeat_ns = max(self.heartbeat_ns, beat)
        if header.end and segment.offset >= header.end:
            return self._go_on(header)
        rest = os.pread(segment.fd, header.length, segment.offset)
        distance = self._resync(rest)
        has_next = any(i > header.index for i in segment_indexes(self.directory))
        if distance is None and not has_next and not header.end:
            return False  # the live tail, or the torn one of a writer that was killed
        if not final and not self._hole_is_old():
            return False  # perhaps claimed by a thread that is about to fill it
        lost = distance or len(rest.rstrip(b"\0"))
        if lost:
            self._note(batch, "damaged", header.index, records=None, size=lost)
        if distance is None:
            return self._go_on(header)
        segment.offset += distance
        self.position = position(header.index, segment.offset)
        return True

    def _go_on(self, header: Header) -> bool:
        self.close()
        self.position = position(header.index + 1, 0)
        return True

    def _hole_is_old(self) -> bool:
        now = self._clock.mono_ns()
        if self._hole is None or self._hole[0] != self.position:
            self._hole = (self.position, now)
        return now - self._hole[1] >= HOLE_GRACE_SECONDS * 1e9

    @staticmethod
    def _resync(data: bytes) -> int | None:
        """Distance to the next record that checks out, behind the one at 0 that does not."""
        at = 8
        while at < len(data):
            if data[at : at + 8] == bytes(8):
                rest = len(data) - at
                at += (rest - len(data[at:].lstrip(b"\0"))) // 8 * 8 or 8
                continue
            if _checked(data, at) is not None:
                return at
            at += 8
        return None

    def _note(
        self, batch: Batch, reason: str, segment: int, *, records: int | None, size: int = 0
    ) -> None:
        body: dict[str, Any] = {"reason": reason, "up_to_segment": segment}
        if size:
            body["bytes"] = size
        batch.skipped_records += records or 1
        batch.events.append(Event(self._clock.wall_ns(), "journal_gap", body))

    # ── bytes to records ──────────────────────────────────────────────────────────────────────

    def _decode(self, data: bytes, segment: _Open, batch: Batch) -> int:
        """Decode whole records from the start of `data`; returns how many bytes they took."""
        shift = segment.header.wall_ns - segment.header.mono_ns
        points, spans = batch.points, batch.spans
        at, size = 0, len(data)
        view = memoryview(data)
        crc32, header = zlib.crc32, RECORD.unpack_from
        series, times, steps, values = [], [], [], []
        while at + 16 <= size:
            crc, units, kind, time_ns = header(data, at)
            end = at + units * 8
            if units < 2 or end > size or crc32(view[at + 4 : end]) != crc:
                break
            if kind == POINT:
                _, _, _, step, number, value = POINT_BODY.unpack_from(data, at + 4)
                series.append(number)
                times.append(time_ns + shift)
                steps.append(step)
                values.append(value)
            elif kind == POINTS:
                _, _, _, step, count = POINTS_HEAD.unpack_from(data, at + 4)
                row = points_body(count).unpack_from(data, at + 4)
                series.extend(row[5 : 5 + count])
                times.extend([time_ns + shift] * count)
                steps.extend([step] * count)
                values.extend(row[5 + count :])
            elif kind == SPAN:
                _, _, _, step, name, span, edge = SPAN_BODY.unpack_from(data, at + 4)
                spans.append(name, span, edge, time_ns + shift, step)
            elif kind == EVENT:
                batch.events.append(_event(data[at:end], time_ns + shift))
            elif kind == DEFINE:
                batch.definitions.append(definition_from_json(_text(data[at:end])))
            at = end
        points.series.extend(series)
        points.time_ns.extend(times)
        points.step.extend(steps)
        points.value.extend(values)
        return at


def _event(record: bytes, time_ns: int) -> Event:
    _, _, _, step, scope, length = EVENT_HEAD.unpack_from(record, 4)
    start = 4 + EVENT_HEAD.size
    kind = record[start : start + length].decode()
    body = json.loads(record[start + length :].rstrip(b"\0"))
    return Event(time_ns, kind, body, step, scope)
