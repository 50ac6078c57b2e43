"""Steps and spans: stretches of time with a name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from inspect import iscoroutinefunction
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast

from runwatch.record import BEGIN, END
from runwatch.record.life import Elapsed
from runwatch.sdk.guard import guarded
from runwatch.sdk.kinds import BACKGROUND, DATA_LOADING

if TYPE_CHECKING:
    from runwatch.journal.writer import JournalWriter
    from runwatch.sdk.run import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

STEP: Final = "step"
STEP_SECONDS: Final = "step_seconds"
DATA_WAIT_SECONDS: Final = "data_wait_seconds"
DEVICE_LAG_SECONDS: Final = "device_lag_seconds"
"""How long after they were logged a step's values had arrived from the device."""
LATE_NS: Final = 1_000_000
SHORT_NS: Final = 10_000_000
"""A stretch known only at its end is not recorded if it was shorter than this."""


class Decorating:
    """Wraps each call of a function (`@`), which may be a coroutine."""

    __slots__ = ()

    def again(self) -> AbstractContextManager[object]:
        """A new one like this, so that calls may overlap, in one thread or in several."""
        raise NotImplementedError

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if iscoroutinefunction(function):
            return cast(Callable[P, R], self._around_coroutine(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return function(*args, **kwargs)

        return call

    def _around_coroutine(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return await function(*args, **kwargs)

        return call


class Spanning(Decorating, AbstractContextManager[None]):
    """Also wraps a block (`with`)."""

    __slots__ = ()


class Span(Spanning):
    """One stretch of time.  Its end is recorded even when an exception ends it."""

    __slots__ = ("_begin_ns", "_name", "_name_id", "_run", "_span", "_writer")

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._writer: JournalWriter | None = None

    def again(self) -> Span:
        return type(self)(self._run, self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a new span like this; an open stretch stays with the original."""
        return type(self), (self._run, self._name)

    def __enter__(self) -> None:
        run = self._run
        self.begin(run._step, beside=get_ident() != run._thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(self._run._step)

    @guarded("begin a span")
    def begin(self, step: int, beside: bool = False) -> None:
        """`beside`: the thread that takes the steps does not wait for it."""
        self._writer = None
        writer = self._run._open()
        if writer is None:
            return
        self._name_id = self._run._span_id(self._name + BACKGROUND if beside else self._name)
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


class DataWait(Span):
    """A span of data loading.  Files that are read meanwhile are data, not checkpoints."""

    __slots__ = ("_outer",)

    def __init__(self, run: Run, name: str = DATA_LOADING) -> None:
        super().__init__(run, name)

    def __enter__(self) -> None:
        run = self._run
        beside = get_ident() != run._thread
        self._outer = run._awaits_data
        run._awaits_data = self._outer or not beside
        self.begin(run._step, beside)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run._awaits_data = self._outer
        self.end(self._run._step)


class Step(Span):
    """One training step.  `step_seconds` is recorded only if the step was completed."""

    __slots__ = ("_asked_ns", "_number")

    def __init__(self, run: Run, number: int, asked_ns: int = -1) -> None:
        super().__init__(run, STEP)
        self._number = number
        self._asked_ns = asked_ns

    def again(self) -> Step:
        return Step(self._run, self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return Step, (self._run, self._number)

    def __enter__(self) -> None:
        self._run._thread = get_ident()
        self.enter()

    def enter(self) -> None:
        run = self._run
        run._step = self._number
        if run._at_step is not None:
            run._at_step(self._number, True)
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
        run = self._run
        seconds = self._close(self._number)
        if run._at_step is not None:
            run._at_step(self._number, False)
        if seconds is None or not whole:
            return
        if self._asked_ns < 0:
            run._point(run._own_series(STEP_SECONDS), seconds, self._number)
            return
        ids = (run._own_series(STEP_SECONDS), run._own_series(DATA_WAIT_SECONDS))
        # The wait ends where the step begins, so the step's begin locates the wait too.
        run._points(ids, (seconds, (self._begin_ns - self._asked_ns) / 1e9), self._number)


def data(run_now: Callable[[], Run | None], items: Iterable[T]) -> Iterable[T]:
    """`items`, with a span for each wait; can be iterated as often as `items` can."""
    if hasattr(items, "__next__"):
        return waits(run_now, items)
    return Data(run_now, items)


class Data(Generic[T]):
    """A data loader with a span for each wait.  Everything else goes to the loader itself."""

    __slots__ = ("_items", "_run_now")

    def __init__(self, run_now: Callable[[], Run | None], items: Iterable[T]) -> None:
        self._run_now = run_now
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return waits(self._run_now, self._items)

    def __len__(self) -> int:
        return len(cast(Any, self._items))

    def __bool__(self) -> bool:
        return bool(self._items)

    def __getattr__(self, name: str) -> Any:
        if name in Data.__slots__:  # not set yet: we are being copied
            raise AttributeError(name)
        return getattr(self._items, name)


def waits(run_now: Callable[[], Run | None], items: Iterable[T]) -> Iterator[T]:
    run = run_now()
    if run is None:
        yield from items
        return
    wait = DataWait(run)
    with wait:
        iterator = iter(items)  # a loader starts its workers here
    while True:
        with wait:
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


@guarded("record a stretch of time")
def elapsed(
    run: Run, name: str, begin_ns: int, end_ns: int, *, short_ns: int = SHORT_NS, source: str = ""
) -> None:
    """Record a stretch known only at its end, between two monotonic times, unless it was short.

    If that is long after its end, the event has the present time and says how long ago it ended.
    """
    writer = run._writer
    if writer is None or end_ns - begin_ns < short_ns:
        return
    seconds, ago_seconds = (end_ns - begin_ns) / 1e9, None
    now_ns = run._clock.mono_ns()
    if now_ns - end_ns > LATE_NS:
        ago_seconds, end_ns = (now_ns - end_ns) / 1e9, now_ns
    stretch = Elapsed(name, seconds, ago_seconds, source or None)
    writer.tell(stretch, run._step, run._scope, end_ns)
