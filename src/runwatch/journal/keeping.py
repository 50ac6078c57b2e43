"""What the keeper does for a journal, once a second and when it is woken.

Everything here may wait for the disk, so the slow parts run without the journal's lock.  If the
file system hangs, the keeper hangs, and so does a thread that writes to it; no thread waits for the
keeper.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from runwatch.clock import tick_shift
from runwatch.journal.segment import HEARTBEAT_OFFSET, PREPARED, WORD, segment_name
from runwatch.journal.segment_file import SegmentFile, populate
from runwatch.journal.stored import count_unseen, stored_in
from runwatch.record.life import ClockJump, JournalLoss

if TYPE_CHECKING:
    from runwatch.journal.writer import JournalWriter

SLEPT_NS: Final = 100_000_000


def keep_house(journal: JournalWriter) -> None:
    _beat(journal)
    if journal._full:
        _make_room(journal)
    journal._short = journal._full = False  # try again what the disk refused
    _prepare(journal)
    with journal._lock:
        if journal._starved and journal._prepared is not None:
            journal._turn()  # there is space again
        retired, journal._retired = journal._retired, []
        segment = journal._segment
    for old in retired:
        if journal._shared:
            old.sync()
        old.close()
    _drop_beyond_budget(journal)
    report(journal)
    _mind_sleep(journal)
    if journal._shared and segment is not None and not journal.closed:
        segment.sync()  # another host sees the pages only after they are written


def _beat(journal: JournalWriter) -> None:
    """Write the heartbeat; it also shows whether the mapped file can still be stored to."""
    segment = journal._segment
    if segment is None or journal.closed:
        return
    try:
        segment.write(HEARTBEAT_OFFSET, WORD.pack(journal._now()))
        whole = segment.map is None or segment.holds(journal.segment_bytes)
    except OSError as error:
        whole = error.errno not in (errno.ENOENT, errno.ESTALE)
        if whole:
            _stop_mapping(journal, segment)
    if not whole:
        _leave(journal, segment)


def _stop_mapping(journal: JournalWriter, segment: SegmentFile) -> None:
    """The disk fails or is gone: from here on write with calls, which fail; pages would kill us."""
    with journal._lock:
        if journal._mapped and segment is journal._segment:
            journal._mapped = False
            journal._room = journal._plain_room = 0
            journal._map = bytearray()
            segment.unmap()
            prepared, journal._prepared = journal._prepared, None
            if prepared is not None:
                prepared.close()


def _leave(journal: JournalWriter, segment: SegmentFile) -> None:
    """Somebody truncated or deleted the segment's file: count its records, start a new one."""
    with journal._lock:
        if segment is journal._segment and not journal.closed:
            journal.dropped_records += journal.records - journal._kept[-1][1]
            journal._turn()


def _prepare(journal: JournalWriter) -> None:
    with journal._lock:
        if journal._prepared is not None or journal.closed:
            return
        index = journal._kept[-1][0] + 1
        definitions = journal._definitions.copy()
    try:
        os.makedirs(journal.directory, mode=0o700, exist_ok=True)  # somebody may have deleted it
        segment = journal._new_segment(journal.directory / PREPARED, index)
        segment.put(b"".join(definitions))
    except OSError:
        _make_room(journal)
        return
    segment.definitions = len(definitions)
    populate(segment, 0, journal.segment_bytes)
    if journal._shared:
        segment.sync()
    with journal._lock:
        if not journal.closed and journal._kept[-1][0] + 1 == index:
            journal._prepared = segment
            return
    segment.close()  # the writer made its own segment first, or the journal was closed
    segment.path.unlink(missing_ok=True)


def _make_room(journal: JournalWriter) -> None:
    """The disk is full: drop our own oldest segments, since new records matter more."""
    while _drop_oldest(journal) is False:
        pass


def _drop_beyond_budget(journal: JournalWriter) -> None:
    most = journal.budget_bytes // journal.segment_bytes - 1  # minus the prepared segment
    while len(journal._kept) > most and _drop_oldest(journal) is not None:
        pass


def _drop_oldest(journal: JournalWriter) -> bool | None:
    """Whether that freed space; None if no segment can be dropped.  Unlinks without the lock."""
    with journal._lock:
        if len(journal._kept) < 2:
            return None
        (index, before), (_, after) = journal._kept[:2]
    reached = max(journal.acknowledged, stored_in(journal.directory))
    lost = count_unseen(journal.directory, index, after - before, reached)
    try:
        os.unlink(journal.directory / segment_name(index))
        took_space = True
    except FileNotFoundError:
        took_space = False  # its shipper removed it after a head stored it: nothing is lost
    except OSError:
        return None
    with journal._lock:
        del journal._kept[0]
    journal.dropped_records += lost * took_space
    return took_space


def report(journal: JournalWriter) -> None:
    """Record losses and clock jumps as events, so that people see them."""
    counts = (journal.dropped_records, journal.lost_records)
    if counts != journal._reported and journal._segment is not None and not journal.closed:
        journal.tell(JournalLoss(*counts), scope=journal._own_scope)
        if journal.lost_records == counts[1]:  # otherwise the event itself was lost
            journal._reported = counts
    offset = journal._clock.wall_ns() - journal._clock.mono_ns()
    moved = (offset - journal._clock_offset) / 1e9
    if abs(moved) > 1.0 and not journal.closed:
        journal._clock_offset = offset
        journal.tell(ClockJump(round(moved, 3)), scope=journal._own_scope)


def _mind_sleep(journal: JournalWriter) -> None:
    """After the machine has slept, start a new segment with a new tick shift."""
    if abs(journal._now() - journal._tick() - journal._tick_shift) <= SLEPT_NS:
        return
    shift = tick_shift(journal._clock)  # measure again: we may have been paused between the reads
    if abs(shift - journal._tick_shift) > SLEPT_NS:
        with journal._lock:
            journal._tick_shift = shift
            if journal._segment is not None and not journal.closed:
                journal._turn()
