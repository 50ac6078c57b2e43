"""Appending to a journal from inside a training process.

The calls that run in the training thread (`point`, `points`, `span`, `event`) read the clock once
and store into mapped memory.  Everything slow happens in one small daemon thread, the *keeper*:
making the next segment ready (allocated for real and its pages touched), unmapping the last one,
dropping the oldest beyond the budget, beating the heart.

No lock in the common case.  A record's bytes are first claimed (`_offset` moved), then filled.
CPython switches threads and runs signal handlers only at calls, loop ends and function starts;
there is none of these between reading and moving `_offset`, so a claim is atomic (a free-threaded
interpreter takes the lock instead).  A claim that is never filled, because an exception or a kill
came in between, is a hole: readers step over it.  Going on to the next segment is under a lock,
re-entrant so that a signal handler that logs cannot dead-lock; see `_claim_slowly`.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.journal.segment import (
    DEFAULT_SEGMENT_BYTES,
    DEFINE,
    END_OFFSET,
    HEADER_LENGTH,
    HEARTBEAT_OFFSET,
    MAX_RECORD,
    MIN_SEGMENT_BYTES,
    ORIGIN,
    POINT,
    POINT_BODY,
    POINTS,
    PREPARED,
    PUT_40,
    SPAN,
    SPAN_BODY,
    WORD,
    Header,
    definition_to_json,
    event_record,
    origin_to_json,
    padded,
    points_body,
    seal,
    segment_name,
    text_record,
)
from runwatch.record import NO_STEP, Definition, Origin, RunScope, Series, SpanName

DEFAULT_BUDGET_BYTES: Final = 1 << 30
KEEPER_SECONDS: Final = 1.0
_ONE_THREAD_AT_A_TIME: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
_POPULATE_WRITE: Final = 23  # madvise(2): fault pages in for writing; Linux 5.14
_FIRST_TOUCH: Final = 256 << 10
_POPULATE_CHUNK: Final = 128 << 10  # the call holds the interpreter lock, so in small bites
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "gpfs", "beegfs", "fuse.gcsfuse", "9p")
)


class _Segment:
    """One mapped file."""

    __slots__ = ("map", "fd", "index", "definitions", "offset")

    def __init__(self, path: Path, header: Header) -> None:
        self.index = header.index
        self.definitions = 0
        self.offset = HEADER_LENGTH
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            allocate(self.fd, header.length)
            self.map = mmap.mmap(self.fd, header.length)
        except OSError:
            os.close(self.fd)
            os.unlink(path)
            raise
        self.map[:HEADER_LENGTH] = header.pack()

    def put(self, record: bytes | bytearray) -> None:
        end = self.offset + len(record)
        self.map[self.offset : end] = record
        self.offset = end

    def close(self) -> None:
        self.map.close()
        os.close(self.fd)


def allocate(fd: int, length: int) -> None:
    """Really allocate: a sparse file on a full disk would kill the writer with SIGBUS."""
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        zeros = bytes(1 << 20)
        for start in range(0, length, len(zeros)):
            os.pwrite(fd, zeros[: length - start], start)


def populate(segment: _Segment, start: int, end: int) -> None:
    """Touch the pages so that the training thread does not wait for them."""
    for chunk in range(start, end, _POPULATE_CHUNK):
        size = min(_POPULATE_CHUNK, end - chunk)
        try:
            segment.map.madvise(_POPULATE_WRITE, chunk, size)
        except (OSError, ValueError):
            return  # an older kernel, or closed meanwhile: the pages come on first use
        os.sched_yield()  # lets go of the interpreter lock between bites


def is_network_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    best, kind = "", ""
    try:
        target = str(path.resolve())
        for line in mounts.read_text(errors="replace").splitlines():
            fields = line.split()
            inside = len(fields) > 2 and (target + "/").startswith(fields[1].rstrip("/") + "/")
            if inside and len(fields[1]) >= len(best):
                best, kind = fields[1], fields[2]
    except OSError:
        return False
    return kind in _NETWORK_FILE_SYSTEMS


class JournalWriter:
    """One process's journal.  Never raises for a full disk: it drops, counts and tries again."""

    __slots__ = (
        "budget_bytes", "closed", "directory", "dropped_records", "lost_records", "origin",
        "point", "records", "segment_bytes", "_clock", "_clock_offset", "_closing",
        "_definitions", "_keeper", "_kept", "_known", "_lock", "_map", "_mono_ns", "_next_span",
        "_now", "_offset", "_on_keep", "_pid", "_prepared", "_reported", "_retired", "_room",
        "_scratch", "_segment", "_shared", "_starved", "_stop", "_turning", "_wake", "_wall_ns",
    )  # fmt: skip

    def __init__(
        self,
        root: Path,
        origin: Origin,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        clock: Clock = system_clock,
        on_keep: Callable[[], None] | None = None,
    ) -> None:
        """Opens the first segment, or raises OSError: the caller may have another place."""
        self.origin = origin
        self.directory = root / "journals" / origin.journal
        self.segment_bytes = max(padded(segment_bytes), MIN_SEGMENT_BYTES)
        self.budget_bytes = max(budget_bytes, 2 * self.segment_bytes)
        self.records = 0
        self.lost_records = 0
        """Records not kept because no segment could be had (a full disk)."""
        self.dropped_records = 0
        """Records in segments dropped, oldest first, to stay within the budget."""
        self._reported = (0, 0)
        self._clock = clock
        self._now = clock.mono_ns
        self._wall_ns, self._mono_ns = clock.wall_ns(), clock.mono_ns()
        self._clock_offset = self._wall_ns - self._mono_ns
        self._definitions: list[bytes] = []
        self._known: dict[object, int] = {}
        self._next_span = 0
        self._retired: list[_Segment] = []
        self._closing: list[_Segment] = []
        self._prepared: _Segment | None = None
        self._kept: list[tuple[int, int]] = []  # (index, records before it) of segments on disk
        self._on_keep = on_keep
        self._lock = threading.RLock()
        self.point = self._make_point()
        self._pid = os.getpid()
        self.closed = False
        self._wake = threading.Event()
        self._stop = False
        self._room = 0
        self._offset = 0

        for folder in (root, root / "journals", self.directory):
            if not folder.is_dir():
                os.makedirs(folder, mode=0o700, exist_ok=True)
        self._shared = is_network_file_system(self.directory)
        self._segment: _Segment | None = None
        self._map: mmap.mmap | bytearray = bytearray()
        self._starved = self._turning = False
        self._scratch: list[bytearray] = []
        first = self._new_segment(self.directory / segment_name(0), 0)
        populate(first, 0, _FIRST_TOUCH)
        self._begin(first)
        self._keeper = threading.Thread(target=self._keep, name="runwatch-keeper", daemon=True)
        self._keeper.start()

    # ── in the training thread ────────────────────────────────────────────────────────────────

    def _make_point(self) -> Callable[[int, float, int], None]:
        """The hottest call there is: everything that does not change is a local of the closure."""
        state, now, claim = self, self._now, self._claim_slowly
        pack, put, crc32 = POINT_BODY.pack, PUT_40.pack_into, zlib.crc32

        def point(series: int, value: float, step: int = NO_STEP) -> None:
            """One number.  `value` must be a float, or an int that fits one."""
            offset = state._offset
            end = offset + 40
            if end <= state._room:
                buffer = state._map
                state._offset = end
                state.records += 1
            elif (claimed := claim(40)) is None:
                return
            else:
                buffer, offset = claimed
            body = pack(5, POINT, now(), step, series, value)
            put(buffer, offset, crc32(body), body)

        def point_with_lock(series: int, value: float, step: int = NO_STEP) -> None:
            if (claimed := claim(40)) is not None:
                body = pack(5, POINT, now(), step, series, value)
                put(*claimed, crc32(body), body)

        return point if _ONE_THREAD_AT_A_TIME else point_with_lock

    def _claim(self, length: int) -> tuple[mmap.mmap | bytearray, int] | None:
        """Bytes to fill, or None when there are none to be had (and the loss is counted)."""
        offset = self._offset
        end = offset + length
        if _ONE_THREAD_AT_A_TIME and end <= self._room:
            buffer = self._map
            self._offset = end
            self.records += 1
            return buffer, offset
        return self._claim_slowly(length)

    def _claim_slowly(self, length: int) -> tuple[mmap.mmap | bytearray, int] | None:
        with self._lock:
            if self._turning:
                # A signal handler that logs, in the middle of our own turn to a new segment.
                # What it writes here is complete before the turn goes on and takes it along.
                self._scratch.append(bytearray(length))
                self.records += 1
                return self._scratch[-1], 0
            if self._offset + length > self._room and not self._turn(length):
                self.lost_records += 1
                return None
            offset = self._offset
            buffer = self._map
            self._offset = offset + length
            self.records += 1
            return buffer, offset

    def points(self, series: Sequence[int], values: Sequence[float], step: int = NO_STEP) -> None:
        """Several numbers of one moment, in one record."""
        count = len(series)
        plan = points_body(count)
        length = padded(plan.size + 4)
        if length > MAX_RECORD:
            half = count // 2
            self.points(series[:half], values[:half], step)
            self.points(series[half:], values[half:], step)
            return
        body = plan.pack(length // 8, POINTS, self._now(), step, count, *series, *values)
        self._append(seal(body))

    def span(self, name: int, span: int, edge: int, step: int = NO_STEP) -> int:
        """A span's begin or end; returns its monotonic time."""
        now = self._now()
        body = SPAN_BODY.pack(5, SPAN, now, step, name, span, edge)
        if (claimed := self._claim(40)) is not None:
            PUT_40.pack_into(*claimed, zlib.crc32(body), body)
        return now

    def event(
        self, kind: str, body: Mapping[str, Any], step: int = NO_STEP, scope: int = 0
    ) -> None:
        data = json.dumps(body, separators=(",", ":"), default=str).encode()
        if len(data) > MAX_RECORD - 1024:
            short = {"truncated_bytes": len(data), "text": data[: MAX_RECORD // 8].decode("ascii")}
            data = json.dumps(short).encode()
        self._append(event_record(self._now(), kind[:200], data, step, scope))

    def scope(self, run: RunScope) -> int:
        """Ids in `run`, `series` and `span_name` are given here; the argument's id is ignored."""
        return self._define(("run", run.run, run.rank), run)

    def series(
        self,
        metric: str,
        *,
        scope: int = 0,
        unit: str = "",
        device: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> int:
        labels = labels or {}
        key = ("series", metric, scope, device, tuple(sorted(labels.items())))
        return self._define(key, Series(0, metric, scope, unit, device, labels))

    def span_name(self, name: str, *, scope: int = 0) -> int:
        return self._define(("span", name, scope), SpanName(0, name, scope))

    def new_span(self) -> int:
        with self._lock:
            self._next_span += 1
            return self._next_span

    def _define(self, key: object, definition: Definition) -> int:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            number = len(self._definitions) + 1
            fields = definition_to_json(definition) | {"id": number}
            record = text_record(DEFINE, self._now(), fields)
            self._definitions.append(record)
            self._known[key] = number
            # It must lie before any record that uses it; a later segment repeats it anyway.
            if self._append(record) and self._segment is not None:
                self._segment.definitions = number
            return number

    def _append(self, record: bytes) -> bool:
        claimed = self._claim(len(record))
        if claimed is None:
            return False
        buffer, offset = claimed
        buffer[offset : offset + len(record)] = record
        return True

    def _turn(self, length: int) -> bool:
        """Go on in the next segment.  Under the lock; False when none can be had."""
        if self.closed:
            return False
        self._turning = True
        try:
            old, end = self._segment, self._offset
            self._segment, self._room = None, 0
            if old is not None:
                old.map[END_OFFSET : END_OFFSET + 8] = WORD.pack(end)
                self._retired.append(old)
            new = self._next_segment()
            if new is None:
                self._starved = True
                return False
            self._starved = False
            self._begin(new)
        finally:
            self._turning = False
            self._wake.set()
        return self._offset + length <= self._room

    def _next_segment(self) -> _Segment | None:
        index = self._kept[-1][0] + 1
        path = self.directory / segment_name(index)
        new, self._prepared = self._prepared, None
        try:
            if new is not None and new.index == index:
                os.rename(self.directory / PREPARED, path)
                return new
            # On a full disk only the keeper tries again, once a second.
            return None if self._starved else self._new_segment(path, index)
        except OSError:
            return None

    def _begin(self, segment: _Segment) -> None:
        # `records before` is known only now; the header's crc covers it, so it is written again.
        segment.map[:HEADER_LENGTH] = self._header(segment.index).pack()
        for record in self._definitions[segment.definitions :]:
            if segment.offset + len(record) <= self.segment_bytes:
                segment.put(record)
        segment.definitions = len(self._definitions)
        self._kept.append((segment.index, self.records - len(self._scratch)))
        while self._scratch:
            segment.put(self._scratch.pop(0))
        self._segment = segment
        self._map, self._offset, self._room = segment.map, segment.offset, self.segment_bytes

    def _header(self, index: int) -> Header:
        return Header(
            index, self.segment_bytes, self.records, self._wall_ns, self._mono_ns, self._now()
        )

    def _new_segment(self, path: Path, index: int) -> _Segment:
        segment = _Segment(path, self._header(index))
        segment.put(text_record(ORIGIN, self._now(), origin_to_json(self.origin)))
        return segment

    # ── in the keeper ─────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        if self._segment is not None:
            populate(self._segment, _FIRST_TOUCH, self.segment_bytes)
        while not self._stop:
            self.keep()
            if self._on_keep is not None:
                self._on_keep()
            self._wake.wait(KEEPER_SECONDS)
            self._wake.clear()

    def keep(self) -> None:
        """One round of housekeeping; also what a test calls to have it happen now."""
        self._prepare()
        with self._lock:
            # A thread may still be filling what it claimed in a retired segment: one round's grace.
            retired, self._closing, self._retired = self._closing, self._retired, []
            segment = self._segment
            if segment is not None and not self.closed:
                beat = WORD.pack(self._now())
                segment.map[HEARTBEAT_OFFSET : HEARTBEAT_OFFSET + 8] = beat
        for old in retired:
            old.close()
        self._drop_beyond_budget()
        self._report()
        if self._shared and segment is not None and not self.closed:
            try:
                os.fdatasync(segment.fd)  # another host sees the pages only once they are written
            except OSError:
                return

    def _prepare(self) -> None:
        with self._lock:
            if self._prepared is not None or self.closed:
                return
            index = self._kept[-1][0] + 1
            definitions = self._definitions.copy()
        try:
            segment = self._new_segment(self.directory / PREPARED, index)
        except OSError:
            self._make_room()
            return
        for record in definitions:
            if segment.offset + len(record) <= self.segment_bytes:
                segment.put(record)
        segment.definitions = len(definitions)
        populate(segment, 0, self.segment_bytes)
        with self._lock:
            if self.closed or self._kept[-1][0] + 1 != index:
                segment.close()  # the writer was faster and made its own
                return
            self._prepared = segment

    def _make_room(self) -> None:
        """A full disk: our own oldest segment goes first; what is new matters more."""
        with self._lock:
            if len(self._kept) > 1:
                self._drop_oldest()

    def _drop_beyond_budget(self) -> None:
        most = self.budget_bytes // self.segment_bytes
        with self._lock:
            while len(self._kept) > most:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        (index, before), (_, after) = self._kept[0], self._kept[1]
        path = self.directory / segment_name(index)
        try:
            os.unlink(path)
        except FileNotFoundError:
            del self._kept[0]  # shipped, acknowledged and removed by its reader: nothing lost
            return
        except OSError:
            return
        del self._kept[0]
        self.dropped_records += after - before

    def _report(self) -> None:
        """Losses are records too, so that a person sees them."""
        counts = (self.dropped_records, self.lost_records)
        if counts != self._reported and self._segment is not None and not self.closed:
            self._reported = counts
            self.event("journal_loss", {"dropped_records": counts[0], "lost_records": counts[1]})
        offset = self._clock.wall_ns() - self._clock.mono_ns()
        moved = (offset - self._clock_offset) / 1e9
        if abs(moved) > 1.0 and not self.closed:
            self._clock_offset = offset
            self.event("clock_jump", {"seconds": round(moved, 3)})

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Mark the last segment complete and give back what was allocated but not used."""
        with self._lock:
            if self.closed or os.getpid() != self._pid:
                return
            self._report()
            self.closed = True
            self._room = 0
            segment, self._segment = self._segment, None
            end = self._offset
            self._stop = True
        self._wake.set()
        if self._keeper is not threading.current_thread():
            self._keeper.join(timeout=1.0)
        for old in (*self._closing, *self._retired):
            old.close()
        if self._prepared is not None:
            self._prepared.close()
            (self.directory / PREPARED).unlink(missing_ok=True)
        if segment is not None:
            segment.map[END_OFFSET : END_OFFSET + 8] = WORD.pack(end)
            segment.map.close()
            os.ftruncate(segment.fd, end)  # ours alone and unmapped: no one can be hurt by it
            os.close(segment.fd)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's journal without touching it."""
        self.closed = True
        self._room = 0
        self._lock = threading.RLock()
        self._stop = True
        for segment in (self._segment, self._prepared, *self._closing, *self._retired):
            if segment is not None:
                segment.close()
        self._segment = self._prepared = None
