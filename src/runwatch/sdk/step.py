"""Steps and spans: stretches of time with a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from runwatch.record import BEGIN, END, NO_STEP
from runwatch.sdk.guard import guarded

if TYPE_CHECKING:
    from runwatch.journal.writer import JournalWriter
    from runwatch.sdk.run import Run

T = TypeVar("T")

STEP: Final = "step"
STEP_SECONDS: Final = "step_seconds"
DATA_WAIT_SECONDS: Final = "data_wait_seconds"


class Span(AbstractContextManager[None]):
    """One stretch.  Its end is written also when an exception ends it."""

    __slots__ = ("_begin_ns", "_name", "_name_id", "_run", "_span", "_writer")

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._writer: JournalWriter | None = None

    def __enter__(self) -> None:
        self.begin(self._run._step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(self._run._step)

    @guarded("begin a span")
    def begin(self, step: int) -> None:
        self._writer = None
        writer = self._run._open()
        if writer is None:
            return
        self._name_id = self._run._span_id(self._name)
        self._span = writer.new_span()
        self._begin_ns = writer.span(self._name_id, self._span, BEGIN, step)
        self._writer = writer

    @guarded("end a span")
    def end(self, step: int) -> None:
        self._close(step)

    def _close(self, step: int) -> float | None:
        """Seconds since the beginning; None if that was in another journal (before a fork)."""
        writer, self._writer = self._writer, None
        if writer is None or writer is not self._run._writer:
            return None
        end_ns = writer.span(self._name_id, self._span, END, step)
        return (end_ns - self._begin_ns) / 1e9


class Step(Span):
    """One training step.  `step_seconds` is recorded if it was completed."""

    __slots__ = ("_number", "_waited_ns")

    def __init__(self, run: Run, number: int, waited_ns: int = -1) -> None:
        super().__init__(run, STEP)
        self._number = number
        self._waited_ns = waited_ns

    def __enter__(self) -> None:
        self._run._step = self._number
        self.begin(self._number)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.complete(error is None)

    @guarded("end a step")
    def complete(self, whole: bool = True) -> None:
        seconds = self._close(self._number)
        if seconds is None or not whole:
            return
        run = self._run
        if self._waited_ns < 0:
            run._point(run._own_series(STEP_SECONDS), seconds, self._number)
            return
        ids = (run._own_series(STEP_SECONDS), run._own_series(DATA_WAIT_SECONDS))
        run._points(ids, (seconds, self._waited_ns / 1e9), self._number)


def steps(run: Run, items: Iterable[T], start: int) -> Iterator[tuple[int, T]]:
    """(number, item) for each item; the time until the item came is data wait, the rest step."""
    number = start if -(2**63) < start < 2**63 else NO_STEP
    now = run._clock.mono_ns
    iterator = iter(items)
    while True:
        asked = now()
        try:
            item = next(iterator)
        except StopIteration:
            return
        step = Step(run, number, now() - asked)
        step.__enter__()
        try:
            yield number, item
        finally:
            # Also after `break`.  An exception in the loop's body does not come here until its
            # traceback is let go, so the step it cut short has no end: just what happened.
            step.complete()
        number += 1
