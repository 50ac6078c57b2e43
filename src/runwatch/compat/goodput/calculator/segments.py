"""Which steps of a job survived.

A job's steps are runs of consecutive numbers.  A step that comes again ends a segment: what the
segment did up to that step survived, what it did beyond was wasted.  A segment that is still
going on is summed up as its steps come; one that ends is weighed once, run by run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.stretch import jumps

_NOWHERE: Final = -1


class Event(NamedTuple):
    """A custom event: its type, when it began and ended."""

    type: str
    start: float
    end: float


@dataclass(slots=True)
class Weight:
    """What segments come to, in seconds."""

    productive: float = 0.0
    startup: float = 0.0
    wasted: float = 0.0
    custom: dict[str, float] = field(default_factory=dict)
    last_productive: int = 0
    """The last step that is known to have been done."""

    def add(self, other: Weight) -> None:
        self.productive += other.productive
        self.startup += other.startup
        self.wasted += other.wasted
        for type_, seconds in other.custom.items():
            self.custom[type_] = self.custom.get(type_, 0.0) + seconds


class Numbers:
    """A set of step numbers, as ranges that do not overlap: few, for long runs of steps."""

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._lasts: array[int] = array("q")

    def add(self, first: int, last: int) -> None:
        row = bisect_right(self._firsts, first)
        self._firsts.insert(row, first)
        self._lasts.insert(row, last)

    def smallest_in(self, first: int, last: int) -> int | None:
        row = bisect_left(self._lasts, first)
        if row == len(self._firsts) or self._firsts[row] > last:
            return None
        return max(self._firsts[row], first)


@dataclass(slots=True)
class _Open:
    """The segment that is going on, as if all of it survived."""

    seconds: float = 0.0
    deltas: int = 0
    """How many steps are known to have been done."""
    last_productive: int = 0
    least_at: int = _NOWHERE
    """Where its step with the smallest number is, and …"""
    greatest_at: int = _NOWHERE
    custom: dict[str, float] = field(default_factory=dict)
    custom_seconds: float = 0.0
    """Of the custom events, what the steps that they lie in can give."""
    earlier: Numbers = field(default_factory=Numbers)
    """All of its steps but those of the last run."""


class Segments:
    """The steps of a history; each is meant by its place among them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.count = 0
        """Steps that were taken in."""
        self._open = _Open()
        self._run_at: array[int] = array("q")
        self._segment_at: array[int] = array("q")
        self._segment_run: array[int] = array("q")
        self._segment_until: array[int] = array("q")
        """The number of the step that ended it; the last segment has none yet."""
        self._weights: list[Weight] = []
        """Of each segment that has ended, and …"""
        self._closed = Weight()
        """… of all of them."""
        self._stale: set[int] = set()
        """Segments with an event that was recorded after they had ended."""
        self._event_at: array[int] = array("q")
        """The step that an event lies in; in order."""
        self._event_type: list[str] = []
        self._event_seconds: array[float] = array("d")
        self._spent: dict[int, float] = {}
        """Step → what its events took."""
        self._waiting: list[Event] = []
        """Events since the last step began."""

    @property
    def disruptions(self) -> int:
        return len(self._segment_until)

    @property
    def greatest(self) -> int:
        """The highest step of the last segment; 0 if there are no steps."""
        return self._history.numbers[self._open.greatest_at] if self.count else 0

    @property
    def greatest_start(self) -> float:
        return self._history.steps.times[self._open.greatest_at]

    @property
    def last_start(self) -> float:
        return self._history.steps.times[self.count - 1]

    def stretches(self) -> Iterator[tuple[int, int, int | None]]:
        """(its first step, where the next begins, the number that ended it) of each segment."""
        if self.count:
            ends = (*self._segment_at[1:], self.count)
            yield from zip(self._segment_at, ends, (*self._segment_until, None), strict=True)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    def advance(self) -> Iterator[int]:
        """Take in new steps.  Yields each step that comes again before its segment is closed: the
        caller then takes in what was recorded before that step."""
        numbers, base = self._history.numbers, max(self.count - 1, 0)
        if numbers and not self.count:
            self._begin_segment(0)
        for at in jumps(numbers, base):
            if self.count < at:
                yield from self._extend(at)
            if self._has(numbers[at]):
                yield from self._disrupt(at)
            else:
                self._open.earlier.add(numbers[self._run_at[-1]], numbers[self.count - 1])
                self._begin_run(at)
        yield from self._extend(len(numbers))

    def _extend(self, end: int) -> Iterator[int]:
        """Steps up to `end`, each numbered one more than the one before it."""
        while self.count < end:
            again = self._first_again(end)
            if self.count < again:
                self._grow(again)
            if again < end:
                yield from self._disrupt(again)

    def _first_again(self, end: int) -> int:
        """The first of the next steps that was done before; `end` if none was."""
        numbers = self._history.numbers
        again = self._open.earlier.smallest_in(numbers[self.count], numbers[end - 1])
        return end if again is None else self.count + again - numbers[self.count]

    def _grow(self, end: int) -> None:
        steps, numbers, state = self._history.steps, self._history.numbers, self._open
        if self._waiting:
            self._settle()
        before, last = self.count - 1, end - 1
        state.seconds += steps.times[last] - steps.times[before] + steps.set_back(before, last)
        state.deltas += end - self.count
        state.last_productive = numbers[last] - 1
        if numbers[last] > numbers[state.greatest_at]:
            state.greatest_at = last
        self.count = end

    def _has(self, number: int) -> bool:
        numbers = self._history.numbers
        if numbers[self._run_at[-1]] <= number <= numbers[self.count - 1]:
            return True
        return self._open.earlier.smallest_in(number, number) is not None

    def _run_end(self, run: int) -> int:
        return self._run_at[run + 1] if run + 1 < len(self._run_at) else self.count

    def _begin_run(self, at: int) -> None:
        state, numbers = self._open, self._history.numbers
        self._waiting.clear()  # they lie in no step: what came next was another one
        self._run_at.append(at)
        self.count = at + 1
        if state.least_at == _NOWHERE or numbers[at] < numbers[state.least_at]:
            state.least_at = at
        if state.greatest_at == _NOWHERE or numbers[at] > numbers[state.greatest_at]:
            state.greatest_at = at

    def _begin_segment(self, at: int) -> None:
        self._open = _Open()
        self._segment_at.append(at)
        self._segment_run.append(len(self._run_at))
        self._begin_run(at)

    def _disrupt(self, at: int) -> Iterator[int]:
        yield at
        self._segment_until.append(self._history.numbers[at])
        self._weights.append(self._weigh(len(self._weights)))
        self._closed.add(self._weights[-1])
        self._begin_segment(at)

    # ── custom events ─────────────────────────────────────────────────────────────────────────

    def place(self, event: Event, steps_before: int) -> None:
        """An event counts if it lies within a step that survives."""
        steps, step = self._history.steps, steps_before - 1
        if step < 0:
            return
        if event.start < steps.times[step]:  # recorded after the step that it lies in
            step = steps.first_after(event.start) - 1
        if step + 1 == self.count:
            self._waiting.append(event)
        elif step >= 0 and event.end <= steps.times[step + 1] and not self._is_run(step + 1):
            self._count(step, event)

    def _settle(self) -> None:
        """The next step has come: count the waiting events that lie within the last one."""
        end = self._history.steps.times[self.count]
        for event in self._waiting:
            if event.end <= end:
                self._count(self.count - 1, event)
        self._waiting.clear()

    def _is_run(self, at: int) -> bool:
        run = bisect_left(self._run_at, at)
        return run < len(self._run_at) and self._run_at[run] == at

    def _count(self, step: int, event: Event) -> None:
        state, before = self._open, self._left_of(step)
        seconds = event.end - event.start
        self._spent[step] = self._spent.get(step, 0.0) + seconds
        row = bisect_right(self._event_at, step)
        self._event_at.insert(row, step)
        self._event_type.insert(row, event.type)
        self._event_seconds.insert(row, seconds)
        segment = bisect_right(self._segment_at, step) - 1
        if segment < len(self._weights):
            self._stale.add(segment)
        else:
            state.custom_seconds += before - self._left_of(step)
            state.custom[event.type] = state.custom.get(event.type, 0.0) + seconds

    # ── what it comes to ──────────────────────────────────────────────────────────────────────

    def weight(self) -> Weight:
        """Of all segments; the last step of the last one is not counted."""
        state, second = self._open, self._open.least_at + 1
        first = None
        if 0 < second < self.count and not self._is_run(second):
            first = self._left_of(state.least_at)
        seconds = state.seconds - state.custom_seconds
        startup = _startup(first, seconds, state.deltas)
        total = Weight(seconds - startup, startup, 0.0, dict(state.custom), state.last_productive)
        if self._stale:
            self._weigh_again()
        total.add(self._closed)
        return total

    def _weigh_again(self) -> None:
        for segment in self._stale:
            self._weights[segment] = self._weigh(segment)
        self._stale.clear()
        self._closed = Weight()
        for weight in self._weights:
            self._closed.add(weight)

    def _weigh(self, segment: int) -> Weight:
        """A closed segment.  By the original's rule, one that was redone from step 0 counts 0."""
        until, numbers = self._segment_until[segment], self._history.numbers
        if until == 0:
            return Weight()
        times, weight, deltas, first = self._history.steps.times, Weight(), 0, None
        runs = [*self._segment_run[segment : segment + 2], len(self._run_at)]
        begins = self._run_at[runs[0] : runs[1]]
        least = min(numbers[at] for at in begins)
        previous = begins[0]
        for run, at in enumerate(begins, runs[0]):
            number, last = numbers[at], self._run_end(run) - 1
            if number <= until:
                cut = at + min(numbers[last], until) - number
                if number == least and cut > at:
                    first = self._left_of(at)
                weight.productive += self._survived(at, cut, weight.custom)
                deltas += cut - at
                previous = cut
            weight.wasted += times[last] - times[previous]
            previous = last
        weight.startup = _startup(first, weight.productive, deltas)
        weight.productive -= weight.startup
        return weight

    def _survived(self, start: int, end: int, custom: dict[str, float]) -> float:
        """The time from step `start` to step `end` of a run, less its custom events'."""
        steps = self._history.steps
        if start == end:
            return 0.0
        seconds = steps.times[end] - steps.times[start] + steps.set_back(start, end)
        low, high = bisect_left(self._event_at, start), bisect_left(self._event_at, end)
        for row in range(low, high):
            type_ = self._event_type[row]
            custom[type_] = custom.get(type_, 0.0) + self._event_seconds[row]
        for step in dict.fromkeys(self._event_at[low:high]):
            seconds -= self._length(step) - self._left_of(step)
        return seconds

    def _left_of(self, step: int) -> float:
        """How long a step took without its custom events."""
        length = self._length(step)
        return length - min(self._spent.get(step, 0.0), length)

    def _length(self, step: int) -> float:
        times = self._history.steps.times
        return max(times[step + 1] - times[step], 0.0)


def _startup(first: float | None, total: float, count: int) -> float:
    """How much longer the first step took than the others did."""
    if first is None or count < 2:
        return 0.0
    return max(first - (total - first) / (count - 1), 0.0)
