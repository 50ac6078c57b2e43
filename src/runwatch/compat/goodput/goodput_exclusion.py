"""Goodput without stretches of time that its user takes out: a maintenance, a weekend.

The names are those of `ml_goodput_measurement.goodput_exclusion`.  The original has other rules
here than without exclusions: checkpoints play no part, a custom event counts as far as it overlaps
with steps, and only time that was measured as something can be taken out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import Any

from runwatch.compat.goodput import exclusion_utils, goodput_utils
from runwatch.compat.goodput.calculator.codes import (
    CUSTOM_END,
    CUSTOM_START,
    INIT_END,
    INIT_START,
    JOB_START,
    LOAD_END,
    LOAD_START,
    PREPARATION_END,
    PREPARATION_START,
)
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.rules import Fold, accounted, shares
from runwatch.compat.goodput.calculator.stretch import jumps
from runwatch.compat.goodput.exclusion_utils import Interval, normalize_intervals
from runwatch.compat.goodput.goodput_utils import BadputType, UnproductiveTimeDict

__all__ = [
    "BadputType",
    "GoodputExclusion",
    "UnproductiveTimeDict",
    "exclusion_utils",
    "goodput_utils",
]


@dataclass(slots=True)
class Remainder:
    """What is left of a job without the excluded time, in seconds."""

    productive: float = 0.0
    badput: UnproductiveTimeDict = field(default_factory=dict)
    excluded: float = 0.0
    max_productive_step: int = 0


class _Reckoning:
    """Every piece of the job that was measured loses what is excluded of it.

    `exclusions` are as `normalize_intervals` gives them; `fold` is up to date and stays as it is.
    """

    def __init__(self, fold: Fold, exclusions: Sequence[Interval]) -> None:
        self._fold = fold
        self._history = fold.history
        self._exclusions = exclusions
        self._ends = [end for _, end in exclusions]
        self._stretches = list(fold.segments.stretches())
        self._events = _Events(self._history)
        self._excluded = 0.0
        self._productive = self._startup = self._wasted = 0.0
        self._last = 0

    def remainder(self) -> Remainder:
        kind = BadputType
        initialised = sum(self._pieces(INIT_START, INIT_END))
        prepared = sum(self._pieces(PREPARATION_START, PREPARATION_END))
        blocking, beside = self._loads()
        recovery = self._recovery()
        for start, end, until in self._stretches:
            self._segment(start, end, until)
        self._last_step()
        badput: UnproductiveTimeDict = {
            kind.TPU_INITIALIZATION: initialised,
            kind.TRAINING_PREP: prepared,
            kind.DATA_LOADING_SYNC: blocking,
            kind.DATA_LOADING_ASYNC: beside,
            kind.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: 0.0,
            kind.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME: 0.0,
            kind.PROGRAM_STARTUP: self._startup,
            kind.WASTED_PROGRESS_FROM_DISRUPTION: self._wasted,
            kind.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: recovery,
            kind.CUSTOM_BADPUT_EVENTS: self._events.seconds,
        }
        return Remainder(self._productive, badput, self._excluded, self._last)

    def _left(self, start: float, end: float) -> float:
        """What is left of a piece."""
        first = bisect_right(self._ends, start)
        overlap = 0.0
        while first < len(self._exclusions) and self._exclusions[first][0] < end:
            begin, finish = self._exclusions[first]
            overlap += max(min(end, finish) - max(start, begin), 0.0)
            first += 1
        self._excluded += overlap
        return end - start - overlap

    # ── pairs ─────────────────────────────────────────────────────────────────────────────────

    def _pieces(self, start_code: int, end_code: int) -> Iterator[float]:
        for _, start, end in pairs(self._history, start_code, end_code):
            yield self._left(start, end)

    def _loads(self) -> tuple[float, float]:
        """(loads that held the job up, the others): the first of the job and of each segment."""
        blocking = beside = 0.0
        begins = [start for start, _, _ in self._stretches[1:]]
        due = 0
        for steps_before, start, end in pairs(self._history, LOAD_START, LOAD_END):
            segment = bisect_left(begins, steps_before)
            left = self._left(start, end)
            if segment >= due:
                blocking += left
                due = segment + 1
            else:
                beside += left
        return blocking, beside

    def _recovery(self) -> float:
        """From the last step before a disruption to the start of the program after it."""
        history, seconds = self._history, 0.0
        for at, _, _ in self._stretches[1:]:
            last = history.steps.times[at - 1]
            row = history.codes.rfind(JOB_START, 0, bisect_right(history.places, at))
            if row >= 0 and history.others.times[row] > last:
                seconds += self._left(last, history.others.times[row])
        return seconds

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    def _segment(self, start: int, end: int, until: int | None) -> None:
        deltas = 0
        productive = 0.0
        first: float | None = None
        last = 0
        runs = self._runs(start, end)
        least = min(number for number, _, _ in runs)
        previous: float | None = None
        for number, low, high in runs:
            times = self._history.steps.times[low:high]
            if previous is not None:  # since the run before nobody knows what was done
                left = self._left(previous, times[0])
                self._wasted += max(left, 0.0) if until is not None and number > until else 0.0
            for step, (begin, finish) in enumerate(pairwise(times), number):
                left = self._left(begin, finish)
                if until is not None and step >= until:
                    self._wasted += max(left, 0.0)
                    continue
                left = max(left - self._events.within(begin, finish), 0.0)
                productive += left
                deltas += 1
                last = step
                if step == least:
                    first = left
            previous = times[-1]
        if first is not None and deltas > 1:
            startup = max(first - (productive - first) / (deltas - 1), 0.0)
            self._startup += startup
            productive -= startup
        self._productive += productive
        self._last = max(self._last, last)

    def _runs(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(number of its first step, where it begins, where it ends) of each run of a segment."""
        numbers = self._history.numbers
        inner = jumps(numbers, start, end)
        return [(numbers[low], low, high) for low, high in pairwise((start, *inner, end))]

    def _last_step(self) -> None:
        """It lasted until the job's end, if that is known."""
        segments, end = self._fold.segments, self._fold.end
        if end is None or not self._stretches:
            return
        self._productive += max(self._left(segments.greatest_start, end), 0.0)
        self._last = segments.greatest


def pairs(history: History, start_code: int, end_code: int) -> Iterator[tuple[int, float, float]]:
    """(steps before its end, when it began, when it ended) of each pair of one kind."""
    codes, times = history.codes, history.others.times
    end = codes.find(end_code)
    after = 0
    while end >= 0:
        start = codes.rfind(start_code, after, end)
        if start >= 0:
            yield history.places[end], times[start], times[end]
        after, end = end + 1, codes.find(end_code, end + 1)


class _Events:
    """Custom events in order, and how much of each type lay in steps."""

    def __init__(self, history: History) -> None:
        self.seconds: dict[str, float] = {}
        self._events = sorted(_custom_events(history))
        for _, _, name in self._events:
            self.seconds[name] = 0.0
        self._next = 0
        self._around: list[tuple[float, float, str]] = []
        """Events that may reach into the next step."""
        self._from = -inf

    def within(self, begin: float, finish: float) -> float:
        """How much of a step was spent on events; an event may lie in several steps."""
        if begin < self._from:  # a clock was set back
            self._next, self._around = 0, []
        self._from = begin
        while self._next < len(self._events) and self._events[self._next][0] < finish:
            self._around.append(self._events[self._next])
            self._next += 1
        if not self._around:
            return 0.0
        self._around = [event for event in self._around if event[1] > begin]
        total = 0.0
        for start, end, name in self._around:
            overlap = min(finish, end) - max(begin, start)
            if overlap > 0:
                self.seconds[name] += overlap
                total += overlap
        return total


def _custom_events(history: History) -> Iterator[tuple[float, float, str]]:
    starts: dict[str, float] = {}
    for at, row in zip(history.note_at, history.note_row, strict=True):
        code = history.codes[at]
        if code not in (CUSTOM_START, CUSTOM_END):
            continue
        name, time = history.words[row].upper(), history.others.times[at]
        if code == CUSTOM_START:
            starts[name] = time
        elif (start := starts.pop(name, time)) < time:
            yield start, time, name


class GoodputExclusion:
    """What a calculator needs to leave intervals out."""

    _lock: AbstractContextManager[Any]
    _fold: Fold

    def _refresh(self) -> None:
        raise NotImplementedError

    def _now(self) -> float:
        raise NotImplementedError

    def get_job_goodput_with_exclusions(
        self,
        exclusion_intervals: list[tuple[datetime, datetime]],
        include_badput_breakdown: bool = False,
        configured_ideal_step_time: float | None = None,
    ) -> tuple[float, UnproductiveTimeDict, int, float]:
        """(goodput, badput by kind or {} if not asked for, last productive step, excluded seconds).

        Shares are of the job's time less the excluded seconds; if nothing is left they are 0.
        Later answers about the whole job are not touched by it.
        """
        exclusions = normalize_intervals(exclusion_intervals)
        with self._lock:
            self._refresh()
            remainder = _Reckoning(self._fold, exclusions).remainder()
            start, end = self._fold.start, self._fold.end
            kinds = self._fold.figures().badput
        until = self._now() if end is None else end
        total = 0.0 if start is None else until - start - remainder.excluded
        if total <= 0:
            return 0.0, {}, remainder.max_productive_step, remainder.excluded
        none: UnproductiveTimeDict = dict.fromkeys(kinds, 0.0)
        badput = accounted(remainder.productive, none | remainder.badput, total)
        percent = remainder.productive / total * 100
        breakdown = shares(badput, total) if include_badput_breakdown else {}
        return percent, breakdown, remainder.max_productive_step, remainder.excluded
