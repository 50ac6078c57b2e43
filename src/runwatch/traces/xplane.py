"""Reads XSpace, the protobuf of XLA's profiler: planes, with lines, with events.

    XSpace  1 planes, 2 errors, 3 warnings, 4 hostnames
    XPlane  1 id, 2 name, 3 lines, 4 event metadata (map), 5 stat metadata (map), 6 stats
    XLine   1 id, 2 name, 3 timestamp_ns, 4 events, 9 duration_ps, 10 display id, 11 display name
    XEvent  1 metadata id, 2 offset_ps or 5 occurrences, 3 duration_ps, 4 stats
    XStat   1 metadata id, one of 2 double, 3 uint64, 4 int64, 5 text, 6 bytes, 7 reference

A plane's metadata come after its lines, so a plane is read twice: first around its lines, then the
lines.  The events of a line are decoded in blocks, all events of a block at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from runwatch.traces import intervals, wire
from runwatch.traces.account import HOST, Account, Lane, Reading, Step
from runwatch.traces.intervals import Ints
from runwatch.traces.names import (
    Work,
    device_lines,
    device_work,
    host_work,
    is_collective,
)
from runwatch.traces.opening import BadTrace, Limits
from runwatch.traces.own_threads import is_own_line
from runwatch.traces.wire import BYTES, Messages, Range, Wire

_DEVICE: Final = re.compile(r"^/device:(?:GPU|TPU):(\d{1,6})$")
_EVENTS: Final = 4
_EVENT_TAG: Final = _EVENTS << 3 | BYTES
_FARTHEST_PS: Final = 1 << 61
_EPOCH_NANOSECONDS: Final = 10**18
_MOST_STEPS: Final = 200_000
_MOST_NOTES: Final = 20
_MOST_STATS: Final = 100
"""For one event."""
_LONGEST_STAT: Final = 1 << 16
"""Bytes; a longer stat of a plane is not one that we use."""
_LAST_ALLOCATIONS: Final = 200
"""How many allocations we read in each block of events."""
_FIRST_EVENTS: Final = 5_000
"""Of a line, to see whose thread it is."""
_LARGEST_ID: Final = (1 << 62) - 1

Stats = dict[str, int | float | str]


@dataclass
class _Plane:
    range: Range
    name: str = ""
    lines: list[Range] = field(default_factory=list)
    events: dict[int, str] = field(default_factory=dict)
    """Metadata id -> name."""
    stats: dict[int, str] = field(default_factory=dict)
    own: Stats = field(default_factory=dict)


@dataclass
class _Line:
    name: str = ""
    timestamp_ns: int = 0
    events_at: int | None = None
    end: int = 0


class _Names:
    """Maps a plane's metadata ids to name numbers of the reading, and to kinds of work."""

    def __init__(self, plane: _Plane, into: dict[str, int], most: int, *, device: bool) -> None:
        choose = device_work if device else _host_work
        self.ids = np.array(sorted(plane.events), np.int64)
        words = [plane.events[number] for number in self.ids.tolist()]
        self.numbers = np.array([_number(into, word, most) for word in words], np.int64)
        self.unknown = _number(into, "(no name)", most)
        self._words = dict(zip(self.numbers.tolist(), words, strict=True)) | {self.unknown: ""}
        self._chosen = {n: choose(w) for n, w in zip(self.numbers.tolist(), words, strict=True)}
        self._chosen[self.unknown] = Work.COMPUTE if device else Work.HOST

    def work(self, size: int, seen: Mapping[int, Stats]) -> Ints:
        """Kinds of work by name number.  The stats of events mark steps and XLA's operations."""
        table = np.full(size, Work.NONE, np.int64)
        table[list(self._chosen)] = list(self._chosen.values())
        for metadata, stats in seen.items():
            number = int(self.of(np.array([metadata]))[0])
            if "hlo_op" in stats:
                is_sent = is_collective(self._words[number])
                table[number] = Work.COMMUNICATION if is_sent else Work.COMPUTE
            elif "step_num" in stats:
                table[number] = Work.NONE
        return table

    def of(self, metadata: Ints) -> Ints:
        if not len(self.ids):
            return np.full(len(metadata), self.unknown)
        at = np.minimum(np.searchsorted(self.ids, metadata), len(self.ids) - 1)
        return np.where(self.ids[at] == metadata, self.numbers[at], self.unknown)


def _number(into: dict[str, int], name: str, most: int) -> int:
    if name not in into and len(into) >= most:
        name = "(other names)"
    return into.setdefault(name, len(into))


def _extent(where: Range) -> tuple[int, int]:
    return where.begin, where.end - where.begin


def _host_work(name: str) -> Work:
    """The work of a host event that is not an XLA operation."""
    return Work.COMMUNICATION if name.startswith(("gloo", "mpi")) else host_work(name)


class _Reader:
    def __init__(self, file: Wire, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._names: dict[str, int] = {}
        self._hidden: set[str] = set()
        self._profile_start_ns: int | None = None
        self._unreadable = 0
        self._empty_devices: list[str] = []
        self._notes: list[str] = []
        self.reading = Reading("xplane", Account(limits))

    def read(self) -> Reading:
        for each in self._file.fields(self._file.whole):
            if each.type != BYTES or each.number not in (1, 2, 3, 4):
                continue
            if each.number == 1:
                self._read_plane(self._outline(each.range))
            elif each.number == 4:
                self.reading.host = self.reading.host or self._file.text(each.range, 255)
            elif len(self._notes) < _MOST_NOTES:
                word = "error" if each.number == 2 else "warning"
                self._notes.append(f"{word} of the profiler: {self._file.text(each.range, 500)}")
        return self._finish()

    def _finish(self) -> Reading:
        reading = self.reading
        reading.names = list(self._names)
        reading.hidden = frozenset(self._hidden)
        reading.problems += [*self._notes, *self._empty_devices]
        if self._unreadable:
            reading.problems.append(f"{self._unreadable:,} events have no readable time")
        begin = reading.account.begin_ns
        if begin is not None and begin > _EPOCH_NANOSECONDS:
            reading.wall_offset_ns = 0
        else:
            reading.wall_offset_ns = self._profile_start_ns
        return reading

    # ── planes ─────────────────────────────────────────────────────────────────────────────────

    def _outline(self, where: Range) -> _Plane:
        """Everything except the content of the lines."""
        plane = _Plane(where)
        stats: list[bytes] = []
        for each in self._file.fields(where):
            if each.type != BYTES:
                continue
            if each.number == 2:
                plane.name = self._file.text(each.range)
            elif each.number == 3:
                plane.lines.append(each.range)
            elif each.number in (4, 5):
                self._note_metadata(plane.events if each.number == 4 else plane.stats, each.range)
            elif each.number == 6 and each.range.end - each.range.begin <= _LONGEST_STAT:
                stats.append(self._file.take(*_extent(each.range)))
        plane.own = _stats(stats, plane.stats)
        return plane

    def _note_metadata(self, into: dict[int, str], entry: Range) -> None:
        """An entry of a map: 1 key, 2 value {1 id, 2 name, 4 display name}."""
        key, name = 0, ""
        for each in self._file.fields(entry):
            if each.number == 1 and each.type == wire.VARINT:
                key = each.value & _LARGEST_ID
            elif each.number == 2 and each.type == BYTES:
                name = self._name(each.range)
        into[key] = name
        if len(into) > 10 * self._limits.names:
            raise BadTrace(f"more than {self._limits.names * 10:,} names in one plane of the trace")

    def _name(self, metadata: Range) -> str:
        name = ""
        for each in self._file.fields(metadata):
            if each.number == 2 and each.type == BYTES:
                name = self._file.text(each.range)
            elif each.number == 4 and each.type == BYTES:
                # The full name of a TPU operation is its whole text; this is the short name.
                return self._file.text(each.range) or name
        return name

    def _read_plane(self, plane: _Plane) -> None:
        start = plane.own.get("profile_start_time")
        if isinstance(start, int):
            self._profile_start_ns = start
        device = _DEVICE.match(plane.name)
        if device:
            self._read_device(plane, int(device[1]))
        elif plane.name.startswith("/host:") and plane.name != "/host:metadata":
            lines = [self._header(where) for where in plane.lines]
            names = _Names(plane, self._names, self._limits.names, device=False)
            for line in lines:
                self._read_host_line(plane, line, names)

    def _read_device(self, plane: _Plane, device: int) -> None:
        lines = [self._header(where) for where in plane.lines]
        chosen = device_lines(line.name for line in lines)
        names = _Names(plane, self._names, self._limits.names, device=True)
        before = self.reading.account.events
        for line in lines:
            if line.name in chosen:
                lane = Lane(self.reading.account, device)
                self._read_events(line, names, lane, names.work(len(self._names), {}))
            elif line.name == "Steps":
                self._read_device_steps(plane, line)
        if self.reading.account.events == before:
            self._empty_devices.append(f"{plane.name} is in the trace but has no events")

    # ── lines ──────────────────────────────────────────────────────────────────────────────────

    def _header(self, where: Range) -> _Line:
        line = _Line(end=where.end)
        position = where.begin
        while position < where.end:
            each = self._file.field(position, where.end)
            if each.number == _EVENTS:
                line.events_at = each.at
                break
            if each.number == 2 and each.type == BYTES:
                line.name = self._file.text(each.range)
            elif each.number == 3 and each.type == wire.VARINT:
                line.timestamp_ns = wire.signed(each.value)
            position = each.range.end
        return line

    def _read_events(self, line: _Line, names: _Names, lane: Lane, work: Ints) -> None:
        for _messages, metadata, start, end in self._blocks(line):
            lane.push(names.of(metadata), start, end, work)
        lane.close(work)

    def _blocks(self, line: _Line) -> Iterator[tuple[Messages, Ints, Ints, Ints]]:
        """(messages, metadata ids, start, end) of the line's events."""
        if line.events_at is None:
            return
        rest = line.events_at
        for messages, after in self._file.runs(line.events_at, line.end, _EVENT_TAG):
            rest = after
            columns = messages.leading()
            if isinstance(columns, int):
                raise self._file.bad(messages.range(columns).begin, "an event cannot be read")
            self.reading.account.count(len(columns[0]))
            yield messages, *self._times(line, columns)
        self._check_rest(rest, line.end)

    def _check_rest(self, position: int, end: int) -> None:
        """Check that no field we use follows the events: we have passed its place."""
        while position < end:
            each = self._file.field(position, end)
            if each.number in (2, 3, _EVENTS):
                raise self._file.bad(each.at, "the fields of a line are not in order")
            position = each.range.end

    def _times(self, line: _Line, columns: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
        metadata, offset, lasted = columns
        wrong = (offset > _FARTHEST_PS) | (lasted > _FARTHEST_PS)
        if wrong.any():
            self._unreadable += int(wrong.sum())
            offset, lasted = np.where(wrong, 0, offset), np.where(wrong, 0, lasted)
        # Round both ends, not the duration: nested events stay nested.
        start = offset // 1000
        end = (offset + lasted) // 1000
        if line.timestamp_ns:
            start, end = start + line.timestamp_ns, end + line.timestamp_ns
        return metadata, start, end

    # ── the host: steps, memory, and operations that run on the processor ──────────────────────

    def _read_host_line(self, plane: _Plane, line: _Line, names: _Names) -> None:
        lane = Lane(self.reading.account, HOST)
        seen: dict[int, Stats] = {}
        work = names.work(len(self._names), seen)
        for number, (messages, metadata, start, end) in enumerate(self._blocks(line)):
            if number == 0 and self._is_own(plane, metadata, start, end):
                return
            if self._look_at_new(plane, messages, metadata, seen):
                work = names.work(len(self._names), seen)
            self._note_steps(plane, messages, metadata, (start, end), seen)
            self._note_memory(plane, messages, metadata, seen)
            lane.push(names.of(metadata), start, end, work)
        lane.close(work)

    def _is_own(self, plane: _Plane, metadata: Ints, start: Ints, end: Ints) -> bool:
        order = intervals.nesting_order(start, end)
        chosen = slice(None) if order is None else order
        columns = (column[chosen][:_FIRST_EVENTS].tolist() for column in (metadata, start, end))
        names = plane.events
        return is_own_line(
            (names.get(number, ""), begin, finish)
            for number, begin, finish in zip(*columns, strict=True)
        )

    def _look_at_new(
        self, plane: _Plane, messages: Messages, metadata: Ints, seen: dict[int, Stats]
    ) -> bool:
        """Read the stats of the first event of each name; the others have the same ones."""
        numbers, first = np.unique(metadata, return_index=True)
        fresh = [
            (n, at) for n, at in zip(numbers.tolist(), first.tolist(), strict=True) if n not in seen
        ]
        for number, at in fresh:
            seen[number] = self._event_stats(plane, messages, at)
        return bool(fresh)

    def _event_stats(self, plane: _Plane, messages: Messages, at: int) -> Stats:
        fields = wire.plain(messages.body(at)) or ()
        bodies = [data for number, kind, _, data in fields if number == 4 and kind == BYTES]
        return _stats(bodies, plane.stats)

    def _note_steps(
        self,
        plane: _Plane,
        messages: Messages,
        metadata: Ints,
        times: tuple[Ints, Ints],
        seen: Mapping[int, Stats],
    ) -> None:
        marked = [number for number, stats in seen.items() if "step_num" in stats]
        for at in np.flatnonzero(np.isin(metadata, marked)).tolist() if marked else ():
            if len(self.reading.steps) >= _MOST_STEPS:
                return
            step = self._event_stats(plane, messages, at).get("step_num")
            if isinstance(step, int):
                name = plane.events.get(int(metadata[at]), "")
                self._hidden.add(name)
                self._add_step(Step(step, int(times[0][at]), int(times[1][at]), name))

    def _note_memory(
        self, plane: _Plane, messages: Messages, metadata: Ints, seen: Mapping[int, Stats]
    ) -> None:
        """Every allocation carries the peak so far, so the last ones are enough."""
        marked = [number for number, stats in seen.items() if "peak_bytes_in_use" in stats]
        places = np.flatnonzero(np.isin(metadata, marked)).tolist() if marked else []
        for at in places[-_LAST_ALLOCATIONS:]:
            stats = self._event_stats(plane, messages, at)
            peak, name = stats.get("peak_bytes_in_use"), str(stats.get("allocator_name", "device"))
            if isinstance(peak, int):
                self.reading.memory[name] = max(peak, self.reading.memory.get(name, 0))

    def _read_device_steps(self, plane: _Plane, line: _Line) -> None:
        for _, metadata, start, end in self._blocks(line):
            for number, begin, finish in zip(
                metadata.tolist(), start.tolist(), end.tolist(), strict=True
            ):
                name = plane.events.get(number, "")
                if name.isdecimal() and len(name) < 19:
                    self._add_step(Step(int(name), begin, finish, plane.name))

    def _add_step(self, step: Step) -> None:
        if len(self.reading.steps) < _MOST_STEPS:
            self.reading.steps.append(step)


def _stats(bodies: list[bytes], names: Mapping[int, str]) -> Stats:
    stats: Stats = {}
    for body in bodies[:_MOST_STATS]:
        name, value = "", None
        for number, kind, read, data in wire.plain(body) or ():
            if number == 1:
                name = names.get(read, "")
            else:
                value = _stat_value(number, kind, read, data, names)
        if name and value is not None:
            stats[name] = value
    return stats


def _stat_value(
    number: int, kind: int, read: int, data: bytes, names: Mapping[int, str]
) -> int | float | str | None:
    if number == 2:
        return wire.double(read)
    if number in (3, 4):
        return read if number == 3 else wire.signed(read)
    if number == 5 and kind == BYTES:
        return data[:255].decode("utf-8", "replace")
    return names.get(read, "") if number == 7 else None


def read(path: Path, limits: Limits) -> Reading:
    with path.open("rb") as file:
        size = path.stat().st_size
        return _Reader(Wire(str(path), file, size), limits).read()
