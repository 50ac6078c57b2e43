"""Which steps of a job survived.

A job's steps are runs of consecutive numbers.  A step that comes again ends a segment: what the
segment did up to that step survived, what it did beyond was wasted.  A segment that is still
going on is summed up as its steps come; one that ends is weighed once, run by run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from runwatch.compat.goodput.calculator.codes import STEP
from runwatch.compat.goodput.calculator.history import History

_NOWHERE: Final = -1
_CHUNK: Final = 512


class Event(NamedTuple):
    """A custom event: its type by number, when it began and ended."""

    type: int
    start: float
    end: float


@dataclass(slots=True)
class Weight:
    """What segments come to, in seconds."""

    productive: float = 0.0
    startup: float = 0.0
    wasted: float = 0.0
    custom: dict[int, float] = field(default_factory=dict)
    last_productive: int = 0
    """The last step that is known to have been done."""

    def add(self, other: Weight, sign: int = 1) -> None:
        self.productive += sign * other.productive
        self.startup += sign * other.startup
        self.wasted += sign * other.wasted
        for type_, seconds in other.custom.items():
            self.custom[type_] = self.custom.get(type_, 0.0) + sign * seconds


@dataclass(slots=True)
class _Open:
    """The segment that is going on, as if all of it survived."""

    first_run: int = 0
    seconds: float = 0.0
    deltas: int = 0
    """How many steps are known to have been done."""
    last_productive: int = 0
    least: int = 0
    least_at: int = _NOWHERE
    after_least_at: int = _NOWHERE
    greatest: int = 0
    greatest_at: int = _NOWHERE
    custom_at: dict[int, float] = field(default_factory=dict)
    custom: dict[int, float] = field(default_factory=dict)
    custom_seconds: float = 0.0
    """Of the custom events, what the steps that they lie in can give."""
    members: Members | None = None
    """All of its steps but those of the last run, once numbers have gone back."""


class Members:
    """A set of step numbers that asks little memory of long runs."""

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, first: int, last: int) -> None:
        for chunk, low, high in _chunks(first, last):
            mask = ((1 << (high - low + 1)) - 1) << low
            self._chunks[chunk] = self._chunks.get(chunk, 0) | mask

    def first_in(self, first: int, last: int) -> int | None:
        """The smallest member from `first` to `last`."""
        for chunk, low, high in _chunks(first, last):
            bits = self._chunks.get(chunk, 0) >> low & ((1 << (high - low + 1)) - 1)
            if bits:
                return chunk * _CHUNK + low + (bits & -bits).bit_length() - 1
        return None


def _chunks(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """(chunk, its first number, its last) of the numbers from `first` to `last`."""
    for chunk in range(first // _CHUNK, last // _CHUNK + 1):
        base = chunk * _CHUNK
        yield chunk, max(first - base, 0), min(last - base, _CHUNK - 1)


class Segments:
    """The steps of a history.  `at` is a place in it, `number` a step's number."""

    def __init__(self, history: History, on_disruption: Callable[[float], None]) -> None:
        """`on_disruption` is told when the last step before it began."""
        self._history = history
        self._on_disruption = on_disruption
        self.disruptions = 0
        self.last_at = _NOWHERE
        self._last_number = 0
        self._closed = Weight()
        self._open = _Open()
        self._run_at: array[int] = array("q")
        self._run_number: array[int] = array("q")
        self._segment_at: array[int] = array("q")
        self._segment_run: array[int] = array("q")
        self._segment_until: array[int] = array("q")
        """The step that ended it; the last segment has none yet."""
        self._event_at: array[int] = array("q")
        """The step that an event lies in; in order."""
        self._event_type: array[int] = array("q")
        self._event_seconds: array[float] = array("d")
        self._waiting: list[Event] = []
        """Events since the last step began."""
        self._belated: dict[int, list[tuple[int, Event]]] = {}
        """Segment that has ended → events that were recorded only then."""
        self._next_back = 0

    @property
    def may_repeat(self) -> bool:
        """Whether a step may have been done before although it follows from the last one."""
        return self._open.members is not None

    @property
    def greatest(self) -> int:
        """The highest step of the last segment; 0 if there are no steps."""
        return self._open.greatest

    @property
    def greatest_start(self) -> float:
        return self._history.times[self._open.greatest_at]

    @property
    def last_start(self) -> float:
        return self._history.times[self.last_at]

    def stretches(self) -> Iterator[tuple[int, int, int | None]]:
        """(its first step, where the next begins, the step that ended it) of each segment."""
        if self.last_at == _NOWHERE:
            return
        ends = (*self._segment_at[1:], self.last_at + 1)
        yield from zip(self._segment_at, ends, (*self._segment_until, None), strict=True)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    def extend(self, at: int, count: int, stride: int = 1) -> None:
        """`count` steps, each numbered one more than the one before it."""
        members = self._open.members
        if members is not None:
            following = self._last_number + 1
            again = members.first_in(following, following + count - 1)
            if again is not None:
                self._extend_into(at, count, stride, again)
                return
        self._grow(at, count, stride)

    def _extend_into(self, at: int, count: int, stride: int, again: int) -> None:
        """One of the steps, `again`, was done before."""
        before = again - self._last_number - 1
        if before:
            self._grow(at, before, stride)
        at += before * stride
        self._disrupt(at, again)
        if count - before - 1:
            self._grow(at + stride, count - before - 1, stride)

    def jump(self, at: int, number: int) -> None:
        """A step whose number does not follow from the one before."""
        if self.last_at == _NOWHERE:
            self._begin_segment(at, number)
        elif self._has(number):
            self._disrupt(at, number)
        else:
            self._leave_run(number)
            self._begin_run(at, number)

    def _grow(self, at: int, count: int, stride: int) -> None:
        times, state = self._history.times, self._open
        if self._waiting:
            self._settle(at)
        end = at + (count - 1) * stride
        state.seconds += times[end] - times[self.last_at] + self._set_back(self.last_at, end)
        state.deltas += count
        if state.after_least_at == _NOWHERE and state.least_at == self._run_at[-1]:
            state.after_least_at = at
        self.last_at = end
        self._last_number += count
        state.last_productive = self._last_number - 1
        if self._last_number > state.greatest:
            state.greatest, state.greatest_at = self._last_number, end

    def _set_back(self, after: int, until: int) -> float:
        """What clocks that were set back take from the time between two steps of a run."""
        backs = self._history.back_at
        if self._next_back == len(backs):
            return 0.0
        start, end = bisect_right(backs, after), bisect_right(backs, until)
        self._next_back = max(end, self._next_back)
        return sum(self._history.back_seconds[start:end])

    def _has(self, number: int) -> bool:
        state = self._open
        if number > state.greatest:
            return False
        if self._run_number[-1] <= number <= self._last_number:
            return True
        if state.members is not None:
            return state.members.first_in(number, number) is not None
        run = bisect_right(self._run_number, number, lo=state.first_run) - 1
        return run >= state.first_run and number <= self._run_end(run)[1]

    def _run_end(self, run: int) -> tuple[int, int]:
        """(place, number) of its last step."""
        if run + 1 == len(self._run_at):
            return self.last_at, self._last_number
        codes, start = self._history.codes, self._run_at[run]
        at = codes.rfind(STEP, start, self._run_at[run + 1])
        return at, self._run_number[run] + codes.count(STEP, start, at)

    def _leave_run(self, number: int) -> None:
        """The next run begins at `number`, which the segment does not have."""
        state = self._open
        if state.members is not None:
            state.members.add(self._run_number[-1], self._last_number)
        elif number < state.greatest:
            state.members = Members()
            for run in range(state.first_run, len(self._run_at)):
                state.members.add(self._run_number[run], self._run_end(run)[1])

    def _begin_run(self, at: int, number: int) -> None:
        state = self._open
        self._waiting.clear()  # they lie in no step: what came next was another one
        self._run_at.append(at)
        self._run_number.append(number)
        self.last_at, self._last_number = at, number
        if state.least_at == _NOWHERE or number < state.least:
            state.least, state.least_at, state.after_least_at = number, at, _NOWHERE
        if state.greatest_at == _NOWHERE or number > state.greatest:
            state.greatest, state.greatest_at = number, at

    def _begin_segment(self, at: int, number: int) -> None:
        self._open = _Open(first_run=len(self._run_at))
        self._segment_at.append(at)
        self._segment_run.append(len(self._run_at))
        self._begin_run(at, number)

    def _disrupt(self, at: int, number: int) -> None:
        self.disruptions += 1
        self._on_disruption(self.last_start)
        self._segment_until.append(number)
        self._closed.add(self._weigh(len(self._segment_until) - 1))
        self._begin_segment(at, number)

    # ── custom events ─────────────────────────────────────────────────────────────────────────

    def place(self, event: Event) -> None:
        """An event counts if it lies within a step that survives."""
        if self.last_at == _NOWHERE:
            return
        if event.start >= self.last_start:
            self._waiting.append(event)
        else:
            self._place_late(event)

    def _settle(self, at: int) -> None:
        """The last step has ended, at `at`: which of the events since it began lie within it?"""
        end = self._history.times[at]
        for event in self._waiting:
            if event.end <= end:
                self._count(self.last_at, at, event)
        self._waiting.clear()

    def _place_late(self, event: Event) -> None:
        """Recorded after the step that it lies in."""
        history = self._history
        index = history.first_after(event.start)
        step = history.codes.rfind(STEP, 0, index)
        next_step = history.codes.find(STEP, index)
        if step < 0 or event.end > history.times[next_step] or self._is_run(next_step):
            return
        segment = bisect_right(self._segment_at, step) - 1
        if segment < len(self._segment_until):
            self._belated.setdefault(segment, []).append((step, event))
        else:
            self._count(step, next_step, event)

    def _is_run(self, at: int) -> bool:
        run = bisect_left(self._run_at, at)
        return run < len(self._run_at) and self._run_at[run] == at

    def _count(self, step: int, next_step: int, event: Event) -> None:
        """In the segment that is going on."""
        self._keep(step, event)
        state, times = self._open, self._history.times
        length = max(times[next_step] - times[step], 0.0)
        seconds = event.end - event.start
        before = state.custom_at.get(step, 0.0)
        state.custom_at[step] = before + seconds
        state.custom_seconds += min(before + seconds, length) - min(before, length)
        state.custom[event.type] = state.custom.get(event.type, 0.0) + seconds

    def _keep(self, step: int, event: Event) -> None:
        row = bisect_right(self._event_at, step)
        self._event_at.insert(row, step)
        self._event_type.insert(row, event.type)
        self._event_seconds.insert(row, event.end - event.start)

    def settle(self) -> None:
        """Count what was recorded about segments after they had ended."""
        for segment, events in self._belated.items():
            self._closed.add(self._weigh(segment), -1)
            for step, event in events:
                self._keep(step, event)
            self._closed.add(self._weigh(segment))
        self._belated.clear()

    # ── what it comes to ──────────────────────────────────────────────────────────────────────

    def weight(self) -> Weight:
        """Of all segments; the last step of the last one is not counted."""
        state, times = self._open, self._history.times
        first = None
        if state.after_least_at != _NOWHERE:
            length = max(times[state.after_least_at] - times[state.least_at], 0.0)
            first = length - min(state.custom_at.get(state.least_at, 0.0), length)
        seconds = state.seconds - state.custom_seconds
        startup = _startup(first, seconds, state.deltas)
        total = Weight(seconds - startup, startup, 0.0, dict(state.custom), state.last_productive)
        total.add(self._closed)
        return total

    def _weigh(self, segment: int) -> Weight:
        """What a segment comes to that has ended.  One that was done all over is given up."""
        until = self._segment_until[segment]
        if until == 0:
            return Weight()
        start = self._segment_run[segment]
        last_segment = segment + 1 == len(self._segment_run)
        end = len(self._run_at) if last_segment else self._segment_run[segment + 1]
        weight, deltas, first = Weight(), 0, None
        least = min(self._run_number[start:end])
        previous_at = self._run_at[start]
        for run in range(start, end):
            at, number = self._run_at[run], self._run_number[run]
            last_at, last = self._run_end(run)
            if number <= until:
                cut = self._history.steps_before(last_at, max(last - until, 0))
                if number == least and cut > at:
                    first = self._first_delta(at)
                weight.productive += self._survived(at, cut, weight.custom)
                deltas += min(last, until) - number
                previous_at = cut
            weight.wasted += self._history.times[last_at] - self._history.times[previous_at]
            previous_at = last_at
        weight.startup = _startup(first, weight.productive, deltas)
        weight.productive -= weight.startup
        return weight

    def _survived(self, start: int, end: int, custom: dict[int, float]) -> float:
        """The time from step `start` to step `end` of a run, less its custom events'."""
        times = self._history.times
        if start == end:
            return 0.0
        backs = self._history.back_at
        low, high = bisect_right(backs, start), bisect_right(backs, end)
        seconds = times[end] - times[start] + sum(self._history.back_seconds[low:high])
        low, high = bisect_left(self._event_at, start), bisect_left(self._event_at, end)
        while low < high:
            step, total = self._event_at[low], 0.0
            while low < high and self._event_at[low] == step:
                type_ = self._event_type[low]
                custom[type_] = custom.get(type_, 0.0) + self._event_seconds[low]
                total += self._event_seconds[low]
                low += 1
            seconds -= min(total, self._length(step))
        return seconds

    def _first_delta(self, step: int) -> float:
        start, end = bisect_left(self._event_at, step), bisect_right(self._event_at, step)
        length = self._length(step)
        return length - min(sum(self._event_seconds[start:end]), length)

    def _length(self, step: int) -> float:
        times = self._history.times
        return max(times[self._history.codes.find(STEP, step + 1)] - times[step], 0.0)


def _startup(first: float | None, total: float, count: int) -> float:
    """How much longer the first step took than the others did."""
    if first is None or count < 2:
        return 0.0
    return max(first - (total - first) / (count - 1), 0.0)
