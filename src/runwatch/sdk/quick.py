"""Steps as they nearly always are: one after the other, with an open journal and no profile.

A training step of a few milliseconds sweeps all of ours out of the processor's cache, and what
recording the next one costs is the number of places in memory it goes to, not the number of
operations.  Hence this straight line: no call that could be spared, nothing made anew that could be
kept, the records of one moment stored at once.  They are put into the journal's memory as
`JournalWriter.point` does it; `journal/writer.py` says why that needs no lock.

Everything out of the ordinary is left to `Step`, which records the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import error as StructError
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zlib import crc32

from runwatch.journal.segment import (
    POINT,
    POINT_BODY,
    POINTS,
    PUT_40,
    SPAN,
    SPAN_BODY,
    points_of,
    put_both,
    seal,
)
from runwatch.journal.writer import ONE_THREAD_AT_A_TIME, JournalWriter
from runwatch.record import BEGIN, END, NO_STEP
from runwatch.sdk.guard import attempt, guarded
from runwatch.sdk.kinds import DATA_LOADING
from runwatch.sdk.step import DATA_WAIT_SECONDS, STEP, STEP_SECONDS, Step, elapsed
from runwatch.sdk.values import step_number

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

T = TypeVar("T")
Pack = Callable[..., bytes]
Put = Callable[..., Any]

_pack_edge, _pack_point = SPAN_BODY.pack, POINT_BODY.pack
_put_edge = PUT_40.pack_into
_put_edge_and_point = put_both(SPAN_BODY, POINT_BODY).pack_into
_EDGE_AND_POINT: Final = 80
_LARGE: Final = 1 << 62


class QuickStep(Step):
    """`with run.step(7):`; the same object again and again, as long as it is `idle`."""

    __slots__ = ("idle", "_journal", "_now", "_seconds_id")

    def __init__(self, run: Run, journal: JournalWriter) -> None:
        super().__init__(run, NO_STEP)
        self.idle = True
        self._journal = journal
        self._now = run._clock.mono_ns
        self._name_id = run._span_id(STEP)
        self._seconds_id = run._own_series(STEP_SECONDS)

    def __enter__(self) -> None:
        run, journal, number = self._run, self._journal, self._number
        run._thread = get_ident()
        run._step = number
        span = journal._next_span + 1
        journal._next_span = self._span = span
        now = self._begin_ns = self._now()
        try:
            body = _pack_edge(5, SPAN, now, number, self._name_id, span, BEGIN)
        except StructError:  # a number beyond 64 bits
            self._number = NO_STEP
            self.enter()
            return
        crc = crc32(body)
        offset = journal._offset  # from here to `put` there is no call: one step
        end = offset + 40
        if end <= journal._room:
            journal._offset = end
            journal.records += 1
            _put_edge(journal._map, offset, crc, body)
        else:
            self.enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now = self._now()
        if error is None:
            journal, number = self._journal, self._number
            seconds = (now - self._begin_ns) / 1e9
            edge = _pack_edge(5, SPAN, now, number, self._name_id, self._span, END)
            point = _pack_point(5, POINT, now, number, self._seconds_id, seconds)
            crc, point_crc = crc32(edge), crc32(point)
            offset = journal._offset  # from here to `put` there is no call: one step
            end = offset + _EDGE_AND_POINT
            if end <= journal._room:
                journal._offset = end
                journal.records += 2
                _put_edge_and_point(journal._map, offset, crc, edge, point_crc, point)
                self.idle = True
                return
        if self._writer is None:  # it began here
            self._writer = self._journal
        self.complete(error is None)
        self.idle = True


def any_step(run: Run, number: object) -> Step:
    """A step that cannot be quick; those that follow may be."""
    renew(run)
    known = attempt("number a step", None, lambda: step_number(number))
    return Step(run, NO_STEP if known is None else known)


def renew(run: Run) -> None:
    """A quick step where there is none, or where the last one is in use or never came back."""
    quick, journal = run._quick, run._writer
    if journal is None or not ONE_THREAD_AT_A_TIME or (quick is not None and quick.idle):
        return
    if STEP_SECONDS in run._own_ids:  # the first step is over: all names are defined
        run._quick = QuickStep(run, journal)


def steps(run: Run, items: Iterable[T], start: int) -> Iterator[tuple[int, T]]:
    """(number, item) for each item; the time until the item came is data wait, the rest step."""
    number = start if -(2**63) < start < 2**63 else NO_STEP
    now = run._clock.mono_ns
    known: QuickStep | None = None
    run._thread = get_ident()
    asked = now()
    run._awaits_data = True
    try:
        for item in items:  # a loader starts its workers here
            run._awaits_data = False
            if known is not run._quick and (known := _known(run)) is not None:
                journal, name_id = known._journal, known._name_id
                pack_points, ids, put_end, end_bytes = _end_of(run, known)
            if known is None or run._at_step is not None or number > _LARGE:
                yield from _any(run, number, item, asked)
                number += 1
                asked = now()
                run._awaits_data = True
                continue
            run._step = number
            span = journal._next_span + 1
            journal._next_span = span
            begin = now()
            edge = _pack_edge(5, SPAN, begin, number, name_id, span, BEGIN)
            crc = crc32(edge)
            offset = journal._offset  # from here to `put` there is no call: one step
            end = offset + 40
            if end <= journal._room:
                journal._offset = end
                journal.records += 1
                _put_edge(journal._map, offset, crc, edge)
            else:
                _append(run, journal, seal(edge))
            try:
                yield number, item
            finally:
                # Also after `break`, and when an exception leaves the loop: from here the two
                # look the same, so a step that fails is told as one that ended.
                ended = now()
                # The wait ends where the step begins: whoever knows the step's begin knows the
                # wait's, too.
                seconds, waited = (ended - begin) / 1e9, (begin - asked) / 1e9
                edge = _pack_edge(5, SPAN, ended, number, name_id, span, END)
                both = pack_points(7, POINTS, ended, number, 2, ids, seconds, waited)
                crc, points_crc = crc32(edge), crc32(both)
                offset = journal._offset  # from here to `put` there is no call: one step
                end = offset + end_bytes
                if end <= journal._room:
                    journal._offset = end
                    journal.records += 2
                    put_end(journal._map, offset, crc, edge, points_crc, both)
                else:
                    _append(run, journal, seal(edge) + seal(both), 2)
            number += 1
            asked = ended
            run._awaits_data = True
    finally:
        run._awaits_data = False
    elapsed(run, DATA_LOADING, asked, now())  # that the loader had no more


def _known(run: Run) -> QuickStep | None:
    """The run's quick step, once a step with a wait was recorded: all names are defined then."""
    return run._quick if DATA_WAIT_SECONDS in run._own_ids else None


def _end_of(run: Run, quick: QuickStep) -> tuple[Pack, bytes, Put, int]:
    """How a step's end is stored with what step and wait took: two points, 7 units of 8 bytes."""
    body, whole, ids = points_of((quick._seconds_id, run._own_series(DATA_WAIT_SECONDS)))
    return body.pack, ids, put_both(SPAN_BODY, body).pack_into, PUT_40.size + whole.size


def _any(run: Run, number: int, item: T, asked_ns: int) -> Iterator[tuple[int, T]]:
    step = Step(run, number, asked_ns)
    step.enter()
    try:
        yield number, item
    finally:
        step.complete()
        renew(run)


@guarded("record a step")
def _append(run: Run, journal: JournalWriter, records: bytes, count: int = 1) -> None:
    """There is no room left: the segment is full, or the journal is not the run's any more."""
    if run._writer is journal:
        journal._append_slowly(records, count)
