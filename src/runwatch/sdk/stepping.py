"""How a program says where it is: steps, waits and spans; as loops, blocks and pairs of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from runwatch.record import NO_STEP
from runwatch.sdk.guard import attempt, guarded, tally
from runwatch.sdk.kinds import DATA_LOADING, USEFUL
from runwatch.sdk.quick import any_step, steps
from runwatch.sdk.step import DataWait, Span, Step, data
from runwatch.sdk.values.intake import Intake
from runwatch.sdk.values.numbers import metric_name, step_number

if TYPE_CHECKING:
    from runwatch.sdk.run import Run
    from runwatch.views.goodput.classes import Kind

T = TypeVar("T")

_NO_STEP_BEGUN: Final = "end_step() without begin_step(): nothing is recorded"


class Stepping(Intake):
    """The part of a `Run` that a training loop calls."""

    _open_step: Step | None = None
    """What `begin_step` has begun."""

    def _itself(self) -> Run:
        return cast("Run", self)

    def steps(self, items: Iterable[T], *, start: int = 0) -> Iterator[tuple[int, T]]:
        """Iterate a loader: yields (step, item) and records each step and each wait for data."""
        first = attempt("number a step", None, lambda: step_number(start)) or 0
        return steps(self._itself(), items, first)

    def step(self, number: int) -> Step:
        """`with run.step(7):` for loops that `steps` does not fit."""
        if type(number) is int:
            quick = self._quick
            if quick is not None and quick.idle and self._at_step is None:
                quick.idle = False  # no call since the check: no other thread can have taken it
                quick._number = number
                return quick
        return any_step(self._itself(), number)

    @guarded("begin a step")
    def begin_step(self, number: int | None = None) -> None:
        """A step begins, and the one before ends if it has not; `end_step` ends it.

        For loops that a block does not fit.  Without a number it is the one after the last.
        """
        if self._open_step is not None:
            self.end_step()
        if number is None:
            number = 0 if self._step == NO_STEP else self._step + 1
        step = self.step(number)
        step.__enter__()
        self._open_step = step

    @guarded("end a step")
    def end_step(self) -> None:
        step, self._open_step = self._open_step, None
        if step is None:
            tally.count("end_step", _NO_STEP_BEGUN)
        else:
            step.__exit__(None, None, None)

    def data(self, items: Iterable[T]) -> Iterable[T]:
        """The loader `items`, with each wait for an item recorded; for loops that use `step`."""
        return data(self._itself, items)

    def span(self, name: Kind | str, *, useful: bool = False) -> Span:
        """`with run.span("checkpoint_save"):` or `@run.span(…)`: records begin and end.

        `useful`: the run's real work happens here, though not in steps (`rollout`); the time counts
        as productive.
        """
        run = self._itself()
        clean = attempt("name a span", None, lambda: metric_name(name)) or "span"
        if useful:
            return Span(run, clean.removesuffix(USEFUL) + USEFUL)
        return DataWait(run) if clean == DATA_LOADING else Span(run, clean)

    def begin_span(self, name: Kind | str, *, useful: bool = False) -> OpenSpan:
        """The same for code that a block does not fit: `end()` of what it returns ends the span."""
        return OpenSpan(self.span(name, useful=useful))


class OpenSpan:
    """A span that has begun.  `end` ends it; a second call does nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span
        if span is not None:
            span.__enter__()

    def end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has nothing to end; an open stretch stays with the original."""
        return OpenSpan, (None,)
