"""Appending to a journal from inside a training process.

The calls that run in the training thread (`point`, `points`, `span`, `event`) read the clock once
and store into mapped memory.  On file systems where mapping is unsafe they write to the file, under
the lock (`segment_file.py`).  Everything slow happens in one small daemon thread, the *keeper*: it
prepares the next segment (allocates it and touches its pages), unmaps the last one, drops the
oldest ones beyond the budget and writes the heartbeat.  The keeper stores to a mapped page only
right after a write has succeeded: on a hanging file system the store would stop the whole program.

The common case takes no lock.  A record is packed and sealed first; then its bytes are claimed
(`_offset` moves) and stored.  CPython switches threads and runs signal handlers only after calls,
at loop ends and at function starts.  There is none of these between reading `_offset` and the
store, so the two are one step, which no other thread and no exception can interrupt.  (A
free-threaded interpreter takes the lock instead; `undivided.py` explains tracers.)  Only a kill can
come in between, and it leaves one torn record.  Changing to the next segment takes a lock.  The
lock is re-entrant, so a signal handler that logs cannot dead-lock; see `_append_slowly`.

A segment gets its name after its header, origin and definitions are written: any file named like
`00000001.seg` can be read.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from runwatch.clock import Clock, system_clock, tick_of, tick_shift
from runwatch.errors import SegmentError
from runwatch.interruption import is_interruption, let_pass
from runwatch.journal.file_system import is_network_file_system, may_be_mapped
from runwatch.journal.heads import clear_away, lay_note
from runwatch.journal.keeping import keep_house, report
from runwatch.journal.segment import (
    DEFAULT_SEGMENT_BYTES,
    DEFINE,
    END_OFFSET,
    MADE_IN_TURN,
    MAX_RECORD,
    MIN_SEGMENT_BYTES,
    ORIGIN,
    POINT,
    POINT_BODY,
    POINTS,
    PUT_40,
    SPAN,
    SPAN_BODY,
    STEP_IDS,
    STEPS_OFFSET,
    WORD,
    Header,
    definition_to_json,
    event_record,
    origin_to_json,
    padded,
    points_body,
    points_of,
    seal,
    segment_name,
    text_record,
)
from runwatch.journal.segment_file import SegmentFile, populate
from runwatch.journal.undivided import undivided
from runwatch.record import (
    NO_STEP,
    START,
    Definition,
    Origin,
    Position,
    RunScope,
    Series,
    SpanName,
    position,
)
from runwatch.record.message import Message

DEFAULT_BUDGET_BYTES: Final = 1 << 30
KEEPER_SECONDS: Final = 1.0
ONE_THREAD_AT_A_TIME: Final = getattr(sys, "_is_gil_enabled", lambda: True)()
STORES_IN_ORDER: Final = os.uname().machine == "x86_64"
"""Whether a processor that sees another's store also sees all stores before it."""
LARGE_DEFINITION: Final = 4 << 10
"""A definition this large may fail to fit where others still do."""
_FIRST_TOUCH: Final = 256 << 10


class PointCall(Protocol):
    def __call__(self, series: int, value: float, step: int = NO_STEP) -> None: ...


class PointsCall(Protocol):
    def __call__(self, values: Sequence[float], step: int = NO_STEP) -> None: ...


_writers: weakref.WeakSet[JournalWriter] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for writer in list(_writers):
        writer.abandon()


# With the same offset, parent and child would overwrite each other's records.
os.register_at_fork(after_in_child=_abandon_in_child)


class JournalWriter:
    """One process's journal.  A full disk never raises: records are dropped, counted, retried."""

    # Slots lie in memory in the order of their names: those of the training thread are together.
    __slots__ = (
        "acknowledged", "budget_bytes", "closed", "directory", "dropped_records", "lost_records",
        "origin", "point", "segment_bytes", "_clock", "_clock_offset",
        "_definition_room", "_definitions", "_full", "_keeper", "_keeping", "_kept", "_known",
        "_last_definition", "_limit", "_lock", "_map", "_mapped", "_mono_ns", "_next_span", "_now",
        "_offset", "_on_keep", "_own_scope", "_pid", "_placed", "_plain_room", "_prepared",
        "_reported", "_retired", "_room", "_scratch", "_segment", "_shared", "_short", "_starved",
        "_step_ids", "_stop", "_tick", "_tick_shift", "_turning", "_wake", "_wall_ns",
        "__weakref__",
    )  # fmt: skip

    def __init__(
        self,
        root: Path,
        origin: Origin,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        mapped: bool = True,
        clock: Clock = system_clock,
        on_keep: Callable[[], None] | None = None,
        heads: bytes = b"",
        first_segment: int = 0,
        records_before: int = 0,
    ) -> None:
        """Opens the first segment, or raises OSError: the caller may have another place.

        `heads`: the note which heads it is for; it is there before the first segment is.
        `mapped=False` writes segments with calls only, as if no file system were safe to map.
        `first_segment` and `records_before` continue a journal whose earlier segments are elsewhere
        or gone.  Its definitions must be made again first, in their order.
        """
        self.origin = origin
        self.directory = root / "journals" / origin.journal
        self.segment_bytes = max(padded(segment_bytes), MIN_SEGMENT_BYTES)
        self.budget_bytes = max(budget_bytes, 3 * self.segment_bytes)
        self._placed = records_before
        self.lost_records = 0
        """Records not stored because no segment could be allocated (a full disk)."""
        self.dropped_records = 0
        """Records not stored by a head, in segments dropped to stay within the budget."""
        self.acknowledged = START
        """How far a head has stored this journal.  The shipper may set it."""
        self._reported = (0, 0)
        self._clock = clock
        self._now = clock.mono_ns
        self._wall_ns, self._mono_ns = clock.wall_ns(), clock.mono_ns()
        self._clock_offset = self._wall_ns - self._mono_ns
        self._definitions: list[bytes] = []
        self._last_definition = 0
        # Every segment repeats the definitions and still needs room for the largest record.
        self._definition_room = min(
            self.segment_bytes // 2, self.segment_bytes - MAX_RECORD - (8 << 10)
        )
        self._known: dict[object, int] = {}
        self._next_span = 0
        self._own_scope = 0
        self._retired: list[SegmentFile] = []
        self._prepared: SegmentFile | None = None
        self._kept: list[tuple[int, int]] = []  # (index, records before it) of segments on disk
        self._on_keep = on_keep
        self._lock = threading.RLock()
        self._keeping = threading.Lock()
        self.point = self._make_point()
        self._pid = os.getpid()
        self.closed = False
        # A lock used as a flag.  Unlike an Event, a signal handler can set it while the
        # interrupted code is setting it.
        self._wake = threading.Lock()
        self._stop = False
        self._limit = self._room = self._plain_room = 0
        self._offset = 0
        self._step_ids = (0, 0, 0)
        self._tick, self._tick_shift = tick_of(clock), tick_shift(clock)

        for folder in (root, root / "journals", self.directory):
            if not folder.is_dir():
                os.makedirs(folder, mode=0o700, exist_ok=True)
        self._shared = is_network_file_system(self.directory)
        self._mapped = mapped and may_be_mapped(self.directory)
        self._segment: SegmentFile | None = None
        self._map: mmap.mmap | bytearray = bytearray()
        self._starved = self._turning = self._short = self._full = False
        self._scratch: list[tuple[bytes, int]] = []
        try:
            lay_note(self.directory, heads)
            first = self._new_segment(self.directory / MADE_IN_TURN, first_segment)
            populate(first, 0, _FIRST_TOUCH)
            self._begin(first)
        except OSError:
            clear_away(self.directory)
            raise
        _writers.add(self)
        self._keeper = threading.Thread(target=self._keep, name="runwatch-keeper", daemon=True)
        self._keeper.start()

    @property
    def records(self) -> int:
        """Records stored so far; definitions, which are repeated, do not count."""
        return self._placed

    # ── in the training thread ────────────────────────────────────────────────────────────────

    def _make_point(self) -> PointCall:
        """The hottest call: everything that does not change is a local of the closure."""
        state, now, append_slowly = self, self._now, self._append_slowly
        pack, put, join, crc32 = POINT_BODY.pack, PUT_40.pack_into, PUT_40.pack, zlib.crc32

        @undivided
        def point(series: int, value: float, step: int = NO_STEP) -> None:
            """One number.  `value` must be a float, or an int that fits one."""
            body = pack(5, POINT, now(), step, series, value)
            crc = crc32(body)
            offset = state._offset  # from here to `put` there is no call, so it is one step
            end = offset + 40
            if end <= state._room:
                state._offset = end
                state._placed += 1
                put(state._map, offset, crc, body)
            else:
                append_slowly(join(crc, body))

        def point_with_lock(series: int, value: float, step: int = NO_STEP) -> None:
            body = pack(5, POINT, now(), step, series, value)
            append_slowly(join(crc32(body), body))

        return point if ONE_THREAD_AT_A_TIME else point_with_lock

    @undivided
    def _append(self, record: bytes, count: int = 1) -> bool:
        """Store a sealed record; False when there is no room (the loss is counted)."""
        length = len(record)
        offset = self._offset  # from here to the store there is no call, so it is one step
        end = offset + length
        if ONE_THREAD_AT_A_TIME and end <= self._room:
            self._offset = end
            self._placed += count
            self._map[offset:end] = record
            return True
        return self._append_slowly(record, count)

    @undivided
    def _append_slowly(self, record: bytes, count: int = 1) -> bool:
        length = len(record)
        with self._lock:
            if self._turning:
                # A signal handler logs while we change to a new segment: `_begin` stores its
                # record there.
                self._scratch.append((record, count))
                return True
            while True:
                offset = self._offset
                end = offset + length
                if end <= self._room:
                    self._offset = end
                    self._placed += count
                    self._map[offset:end] = record
                    return True
                segment = self._segment
                if segment is not None and segment.map is None:  # definitions are written with it
                    missing = sum(map(len, self._definitions[segment.definitions :]))
                    if end + missing <= self._limit:
                        return self._write(segment, record, count)
                if not self._turn():
                    self.lost_records += count
                    return False

    def _write(self, segment: SegmentFile, record: bytes, count: int) -> bool:
        """Write into a file that is not mapped, under the lock.  Failed records are counted.

        A full btrfs takes milliseconds to refuse a write, so we try only once a second."""
        if self._short:
            self.lost_records += count
            return False
        definitions = len(self._definitions)
        missing = b"".join(self._definitions[segment.definitions : definitions])
        record = missing + record
        offset = self._offset
        end = self._offset = offset + len(record)  # a signal handler that logs writes behind it
        try:
            if end > self._limit:
                raise OSError("no room for the definitions that could not be written before")
            segment.write(offset, record)
        except BaseException as error:
            self.lost_records += count
            if self._offset == end:
                self._offset = offset
            if not isinstance(error, OSError) or is_interruption(error):
                raise
            self._short, self._full = True, error.errno in (errno.ENOSPC, errno.EDQUOT)
            return False
        segment.definitions = max(segment.definitions, definitions)
        self._placed += count
        return True

    def points(
        self,
        series: Sequence[int],
        values: Sequence[float],
        step: int = NO_STEP,
        mono_ns: int | None = None,
    ) -> None:
        """Several numbers at one time (`mono_ns`, else now), in one record."""
        now = self._now() if mono_ns is None else mono_ns
        count = len(series)
        plan = points_body(count)
        length = padded(plan.size + 4)
        if length > MAX_RECORD:
            half = count // 2
            self.points(series[:half], values[:half], step, now)
            self.points(series[half:], values[half:], step, now)
            return
        body = plan.pack(length // 8, POINTS, now, step, count, *series, *values)
        self._append(seal(body))

    def recorder(self, series: tuple[int, ...]) -> PointsCall:
        """`points` for one set of series, with everything constant prepared."""
        count = len(series)
        plan, whole, ids = points_of(series)
        length = whole.size
        if length > MAX_RECORD or not ONE_THREAD_AT_A_TIME:
            return partial(self.points, series)
        state, now, append_slowly, units = self, self._now, self._append_slowly, length // 8
        pack, put, join, crc32 = plan.pack, whole.pack_into, whole.pack, zlib.crc32

        @undivided
        def record(values: Sequence[float], step: int = NO_STEP) -> None:
            body = pack(units, POINTS, now(), step, count, ids, *values)
            crc = crc32(body)
            offset = state._offset  # from here to `put` there is no call, so it is one step
            end = offset + length
            if end <= state._room:
                state._offset = end
                state._placed += 1
                put(state._map, offset, crc, body)
            else:
                append_slowly(join(crc, body))

        return record

    def span(self, name: int, span: int, edge: int, step: int = NO_STEP) -> int:
        """A span's begin or end; returns its monotonic time."""
        now = self._now()
        body = SPAN_BODY.pack(5, SPAN, now, step, name, span, edge)
        self._append(PUT_40.pack(zlib.crc32(body), body))
        return now

    def tell(
        self, message: Message, step: int = NO_STEP, scope: int = 0, mono_ns: int | None = None
    ) -> None:
        self.event(message.KIND, message.body(), step, scope, mono_ns)

    def event(
        self,
        kind: str,
        body: Mapping[str, Any],
        step: int = NO_STEP,
        scope: int = 0,
        mono_ns: int | None = None,
    ) -> None:
        """An event at `mono_ns`, else now.  A body that is too large is cut, and marked as cut."""
        data = json.dumps(body, separators=(",", ":"), default=str).encode()
        if len(data) > MAX_RECORD - 1024:
            short = {"truncated_bytes": len(data), "text": data[: MAX_RECORD // 8].decode("ascii")}
            data = json.dumps(short).encode()
        now = self._now() if mono_ns is None else mono_ns
        self._append(event_record(now, kind[:200], data, step, scope))

    def scope(self, run: RunScope) -> int:
        """`run`, `series` and `span_name` assign ids here; the argument's own id is ignored."""
        number = self._define(("run", run.run, run.rank, run.group), run)
        if self.origin.role != "agent":  # an agent's scopes are runs of other processes
            self._own_scope = number
        return number

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

    def stands_for(self, name: int, seconds: int, wait: int) -> None:
        """Set which span and series STEP records stand for.  Call it before the first of them."""
        with self._lock:
            self._step_ids = (name, seconds, wait)
            if self._segment is not None:
                ids = STEP_IDS.pack(name, seconds, wait)
                self._try_to_write(self._segment, STEPS_OFFSET, ids)

    def new_span(self) -> int:
        with self._lock:
            self._next_span += 1
            return self._next_span

    def _define(self, key: object, definition: Definition) -> int:
        with self._lock:
            existing = self._known.get(key)
            if existing is not None:
                return existing
            if not self._definition_room:
                raise SegmentError("too many metrics and spans")  # without trying again
            # Taken before anything else: a signal handler may define something meanwhile.
            number = self._last_definition = self._last_definition + 1
            fields = definition_to_json(definition) | {"id": number}
            record = text_record(DEFINE, self._now(), fields)
            if len(record) > self._definition_room:
                if len(record) < LARGE_DEFINITION:
                    self._definition_room = 0
                raise SegmentError(f"too many metrics and spans: no room to define {definition}")
            self._definition_room -= len(record)
            self._definitions.append(record)
            # The definition must come before its first use; later segments repeat it.
            if not self._mapped:
                self._append_slowly(b"", count=0)  # writes the definitions that are missing
            elif self._append(record, count=0) and self._segment is not None:
                self._segment.definitions = len(self._definitions)
            self._known[key] = number
            return number

    def _turn(self) -> bool:
        """Change to the next segment.  Under the lock; False if there is none.

        A signal handler's exception may come at any point: the next call then starts over.
        """
        if self.closed:
            return False
        new = None
        try:
            self._turning, self._limit, self._room, self._plain_room = True, 0, 0, 0
            self._finish()
            new = self._next_segment()
            if new is not None:
                self._begin(new)
        except OSError as error:
            let_pass(error)
            new = None
        finally:
            self._turning = False
        if new is not None or not self._starved:
            self._wake_keeper()
        self._starved = new is None
        return new is not None

    def _finish(self) -> None:
        old = self._segment
        if old is not None:
            self._segment = None
            self._retired.append(old)
            # If this fails, a reader moves on once it sees the next segment.
            self._try_to_write(old, END_OFFSET, WORD.pack(self._offset))

    def _try_to_write(self, segment: SegmentFile, offset: int, data: bytes) -> None:
        """Write into a header.  A failure is ignored: a failing disk has lost more than this."""
        try:
            segment.write(offset, data)
        except OSError as error:
            let_pass(error)

    def _next_segment(self) -> SegmentFile | None:
        new, self._prepared = self._prepared, None
        # On a full disk only the keeper retries, once a second.
        if new is not None or self._starved:
            return new
        return self._new_segment(self.directory / MADE_IN_TURN, self._kept[-1][0] + 1)

    def _begin(self, segment: SegmentFile) -> None:
        # `records_before` is known only now, and the header's crc covers it: write it again.
        segment.write(0, self._header(segment.index).pack())
        defined = len(self._definitions)
        segment.put(b"".join(self._definitions[segment.definitions : defined]))
        segment.definitions = defined
        name = self.directory / segment_name(segment.index)
        os.rename(segment.path, name)
        segment.path = name
        self._kept.append((segment.index, self.records))
        while self._scratch and segment.offset + len(self._scratch[0][0]) <= self.segment_bytes:
            record, count = self._scratch.pop(0)
            segment.put(record)
            self._placed += count
        self._segment = segment
        self._offset, self._limit = segment.offset, self.segment_bytes
        if segment.map is not None:
            self._map, self._room = segment.map, self._limit
        # A network file system may show a page copied in the middle of a record.
        self._plain_room = self._room if STORES_IN_ORDER and not self._shared else 0
        self._turning = False

    def _wake_keeper(self) -> None:
        try:
            self._wake.release()
        except RuntimeError as error:  # the keeper is awake already
            let_pass(error)

    def _header(self, index: int) -> Header:
        return Header(
            index,
            self.segment_bytes,
            self.records,
            self._wall_ns,
            self._mono_ns,
            self._now(),
            step_ids=self._step_ids,
            tick_shift=self._tick_shift,
        )

    def _new_segment(self, path: Path, index: int) -> SegmentFile:
        segment = SegmentFile(path, self._header(index), mapped=self._mapped)
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
            self._wake.acquire(timeout=KEEPER_SECONDS)

    def keep(self) -> None:
        """One round of housekeeping.  Tests call it to have a round now."""
        with self._keeping:
            keep_house(self)

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    @property
    def position(self) -> Position:
        """Where the next record will go."""
        return position(self._kept[-1][0], self._offset)

    def close(self) -> None:
        """Mark the last segment as complete and free the space that it did not use."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self.closed:
                return
            report(self)
            self.closed = True
            self._limit = self._room = self._plain_room = 0
            segment, self._segment = self._segment, None
            prepared, self._prepared = self._prepared, None
            retired, self._retired = self._retired, []
            end = self._offset
            self._stop = True
        self._wake_keeper()
        if self._keeper is not threading.current_thread():
            self._keeper.join(timeout=1.0)
        for old in retired:
            old.close()
        if prepared is not None:
            prepared.close()
            prepared.path.unlink(missing_ok=True)
        if segment is not None:
            self._try_to_write(segment, END_OFFSET, WORD.pack(end))
            try:
                segment.cut(end)  # safe: the file is only ours, and `cut` unmaps it first
            except OSError as error:
                let_pass(error)
            finally:
                segment.close()

    def abandon(self) -> None:
        """In a forked child: release the parent's journal without changing it."""
        self.closed = True
        self._limit = self._room = self._plain_room = 0
        self._lock = threading.RLock()
        self._stop = True
        for segment in (self._segment, self._prepared, *self._retired):
            if segment is not None:
                segment.close()
        self._segment = self._prepared = None
        self._retired = []
