"""The fast path for steps: one after another, with an open journal and no profile.

A training step of a few milliseconds sweeps our data out of the processor's cache.  So the cost of
recording the next step is the number of places in memory it touches, not the number of operations.
That is why STEP records have their own layout (`journal/segment.py`), why one call stores each of
them without building it first and without a checksum, why the clock is the cheapest to read, and
why the code is one straight line.  They are stored into the journal's memory like
`JournalWriter.point` does; `journal/writer.py` explains why that needs no lock.

Everything unusual goes to `Step`, which records the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from mmap import mmap
from struct import Struct
from struct import error as StructError
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from runwatch.clock import tick_of, tick_shift
from runwatch.journal.segment import (
    SPAN,
    SPAN_BODY,
    STEP_BEGIN_HEAD,
    STEP_END_HEAD,
    seal,
    step_begin,
    step_end,
    step_span,
)
from runwatch.journal.undivided import undivided
from runwatch.journal.writer import ONE_THREAD_AT_A_TIME, JournalWriter
from runwatch.record import BEGIN, END, NO_STEP
from runwatch.sdk.guard import attempt, guarded
from runwatch.sdk.kinds import DATA_LOADING
from runwatch.sdk.step import DATA_WAIT_SECONDS, STEP, STEP_SECONDS, Step, elapsed
from runwatch.sdk.values.numbers import step_number

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

T = TypeVar("T")
Put = Callable[..., Any]
Place = mmap | bytearray

# Native byte order: each word is stored in one go.  Used only where that is the journal's order.
_put_begin = Struct("qqq").pack_into
_put_end = Struct("qqqqq").pack_into
put_turn = Struct("qqqqqqqq").pack_into
"""A step's end and the begin of the next one, in one go: 64 bytes."""
_LARGE: Final = 1 << 62


class QuickStep(Step):
    """`with run.step(7):`; the same object is reused while it is `idle`."""

    __slots__ = ("idle", "_journal", "_now")

    def __init__(self, run: Run, journal: JournalWriter) -> None:
        super().__init__(run, NO_STEP)
        self.idle = True
        self._journal = journal
        self._now = tick_of(run._clock)
        self._name_id = run._span_id(STEP)
        wait = run._own_series(DATA_WAIT_SECONDS) if DATA_WAIT_SECONDS in run._own_ids else 0
        journal.stands_for(self._name_id, run._own_series(STEP_SECONDS), wait)

    @undivided
    def __enter__(
        self,
        me: Callable[[], int] = get_ident,  # a default is faster than a global
        put: Put = _put_begin,
        head: int = STEP_BEGIN_HEAD,
    ) -> None:
        run, journal = self._run, self._journal
        run._thread = me()
        run._step = number = self._number
        begin = self._begin_ns = self._now()
        offset = journal._offset  # from here to `put` there is no call, so it is one step
        end = offset + 24
        if end > journal._plain_room:
            self._begin_elsewhere()
            return
        journal._offset = end
        try:
            put(journal._map, offset, head, number, begin)
        except StructError:  # the number is beyond 64 bits, and its place is already claimed
            self._begin_without_number(journal._map, offset)

    @guarded("begin a step")
    def _begin_elsewhere(self) -> None:
        if not -_LARGE < self._number < _LARGE:
            self._run._step = self._number = NO_STEP
        _append(self._run, self._journal, step_begin(self._number, self._begin_ns), 0)

    @guarded("begin a step")
    def _begin_without_number(self, place: Place, offset: int) -> None:
        self._run._step = self._number = NO_STEP
        record = step_begin(NO_STEP, self._begin_ns)
        place[offset : offset + len(record)] = record

    @undivided
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        put: Put = _put_end,
        head: int = STEP_END_HEAD,
    ) -> None:
        ended, journal = self._now(), self._journal
        if error is None:
            offset = journal._offset  # from here to `put` there is no call, so it is one step
            end = offset + 40
            if end <= journal._plain_room:
                journal._offset = end
                journal._placed += 1
                put(journal._map, offset, head, self._number, self._begin_ns, 0, ended)
            else:
                _append(self._run, journal, step_end(self._number, self._begin_ns, 0, ended))
        else:
            self._writer, self._span = journal, step_span(self._begin_ns)
            self.complete(False)
        self.idle = True


# ── steps whose times are known already: hooks tell them ──────────────────────────────────────


@undivided
def place_begin(run: Run, journal: JournalWriter, number: int, begin: int) -> None:
    """A step that began at this tick, perhaps a while ago."""
    offset = journal._offset  # from here to `put` there is no call, so it is one step
    end = offset + 24
    if ONE_THREAD_AT_A_TIME and end <= journal._plain_room:
        journal._offset = end
        _put_begin(journal._map, offset, STEP_BEGIN_HEAD, number, begin)
    else:
        _append(run, journal, step_begin(number, begin), 0)


@undivided
def place_end(
    run: Run, journal: JournalWriter, number: int, begin: int, asked: int, ended: int
) -> None:
    """The same for its end.  `asked`: when its batch was asked for; 0: that is not known."""
    offset = journal._offset  # from here to `put` there is no call, so it is one step
    end = offset + 40
    if ONE_THREAD_AT_A_TIME and end <= journal._plain_room:
        journal._offset = end
        journal._placed += 1
        _put_end(journal._map, offset, STEP_END_HEAD, number, begin, asked, ended)
    else:
        _append(run, journal, step_end(number, begin, asked, ended))


@guarded("record a wait")
def place_span(
    run: Run, journal: JournalWriter, name: int, begin: int, ended: int, step: int
) -> None:
    """A span between these ticks."""
    span, shift = journal.new_span(), journal._tick_shift
    edges = ((begin, BEGIN), (ended, END))
    bodies = [SPAN_BODY.pack(5, SPAN, t + shift, step, name, span, edge) for t, edge in edges]
    journal._append(b"".join(map(seal, bodies)), 2)


def any_step(run: Run, number: object) -> Step:
    """A step that cannot take the fast path; those after it may."""
    renew(run)
    whole_number = attempt("number a step", None, lambda: step_number(number))
    return Step(run, NO_STEP if whole_number is None else whole_number)


def renew(run: Run) -> None:
    """Make a quick step if there is none, or if the last one is in use or was never left."""
    quick, journal = run._quick, run._writer
    if journal is None or not ONE_THREAD_AT_A_TIME or (quick is not None and quick.idle):
        return
    if STEP_SECONDS in run._own_ids:  # the first step is over: all names are defined
        run._quick = QuickStep(run, journal)


@undivided
def steps(run: Run, items: Iterable[T], start: int) -> Iterator[tuple[int, T]]:
    """(number, item) for each item; the time until the item came is data wait, the rest step."""
    number = start if -(2**63) < start < 2**63 else NO_STEP
    now, shift = tick_of(run._clock), tick_shift(run._clock)
    quick: QuickStep | None = None
    run._thread = get_ident()
    run._exhausted = False
    asked = now()
    run._awaits_data = True
    try:
        for item in items:  # a loader starts its workers here
            run._awaits_data = False
            if quick is not run._quick and (quick := _known(run)) is not None:
                journal = quick._journal
            if quick is None or run._at_step is not None or number > _LARGE:
                yield from _any(run, number, item, asked + shift)
                number += 1
                asked = now()
                run._awaits_data = True
                continue
            run._step = number
            begin = now()
            offset = journal._offset  # from here to `put` there is no call, so it is one step
            end = offset + 24
            if end <= journal._plain_room:
                journal._offset = end
                _put_begin(journal._map, offset, STEP_BEGIN_HEAD, number, begin)
            else:
                _append(run, journal, step_begin(number, begin), 0)
            try:
                yield number, item
            finally:
                # Also after `break`, and when an exception leaves the loop.  We cannot tell these
                # apart here, so a step that fails is recorded as one that ended.
                ended = now()
                offset = journal._offset  # from here to `put` there is no call, so it is one step
                end = offset + 40
                if end <= journal._plain_room:
                    journal._offset = end
                    journal._placed += 1
                    _put_end(journal._map, offset, STEP_END_HEAD, number, begin, asked, ended)
                else:
                    _append(run, journal, step_end(number, begin, asked, ended))
            number += 1
            asked = ended
            run._awaits_data = True
    finally:
        run._awaits_data = False
    run._exhausted = True
    elapsed(run, DATA_LOADING, asked + shift, now() + shift)  # until the loader had no more


def _known(run: Run) -> QuickStep | None:
    """The run's quick step, after a step with a wait was recorded: then all names are defined."""
    quick = run._quick
    if quick is None or DATA_WAIT_SECONDS not in run._own_ids:
        return None
    ids = (run._own_series(STEP_SECONDS), run._own_series(DATA_WAIT_SECONDS))
    quick._journal.stands_for(quick._name_id, *ids)
    return quick


def _any(run: Run, number: int, item: T, asked_ns: int) -> Iterator[tuple[int, T]]:
    step = Step(run, number, asked_ns)
    step.enter()
    try:
        yield number, item
    finally:
        step.complete()
        renew(run)


@guarded("record a step")
def _append(run: Run, journal: JournalWriter, record: bytes, count: int = 1) -> None:
    """For a full segment, a journal without plain steps, or one that the run has replaced."""
    if run._writer is journal:
        journal._append_slowly(record, count)
