"""The original's rules: from a job's log to where its time went.

`Fold` goes over a history once and then only over what is new; its figures are those that a
calculation from the beginning gives.  The rules are kept as they are, also where they leave time
out or count it twice, because dashboards and tests rely on them.  The strict account, which does
neither, is in `views/goodput`.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import sub
from typing import Final

from runwatch.compat.goodput.calculator.codes import (
    CUSTOM_END,
    CUSTOM_START,
    INIT_END,
    INIT_START,
    JOB_END,
    JOB_START,
    LOAD_END,
    LOAD_START,
    PREPARATION_END,
    PREPARATION_START,
    RESTORE,
    SAVE,
)
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.segments import Event, Segments
from runwatch.compat.goodput.goodput_utils import BadputType, UnproductiveTimeDict, each_amount

_LOADS: Final = re.compile(rb"(?:\x%02x\x%02x){2,}" % (LOAD_START, LOAD_END))
"""Loads one after the other, as the usual loop records them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each kind, not yet checked against the job's total time."""

    productive: float
    badput: UnproductiveTimeDict
    """What was measured; OTHER is not."""
    disruptions: int
    max_productive_step: int
    last_step: int
    start: float | None
    """When the job began."""
    end: float | None
    """When it ended; None if it goes on."""


class Fold:
    """Figures of a history, brought up to date by `advance`."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._at = 0
        self.segments = Segments(history)
        self.start: float | None = None
        self._latest_start: float | None = None
        self._end: float | None = None
        self._steps_before_end = 0
        self._initialised = Spans()
        self._prepared = Spans()
        self._recovery = 0.0
        self._loads = _Loads()
        self._saves = Means()
        self._restores = Means()
        self._event_starts: dict[str, float] = {}
        self._starts: dict[int, Pairs] = {
            INIT_START: self._initialised,
            PREPARATION_START: self._prepared,
            LOAD_START: self._loads,
        }
        self._ends: dict[int, Pairs] = {
            INIT_END: self._initialised,
            PREPARATION_END: self._prepared,
            LOAD_END: self._loads,
        }
        self._handlers: dict[int, Callable[[int, float], None]] = {
            JOB_START: self._job_start,
            JOB_END: self._job_end,
            CUSTOM_START: self._custom_start,
            CUSTOM_END: self._custom_end,
            SAVE: lambda index, _: self._saves.add(self.history.checkpoint(index)),
            RESTORE: lambda index, _: self._restores.add(self.history.checkpoint(index)),
        }

    def advance(self) -> None:
        """Take in what the history has got since the last time."""
        for step in self.segments.advance():
            self._take_others(bisect_right(self.history.places, step))
            self._disrupted()
        self._take_others(len(self.history.codes))

    def _disrupted(self) -> None:
        last_start = self.segments.last_start
        if self._latest_start is not None and self._latest_start > last_start:
            self._recovery += self._latest_start - last_start
        self._loads.disrupted()

    def _take_others(self, end: int) -> None:
        """The entries up to `end` that are no steps."""
        codes, times, at = self.history.codes, self.history.others.times, self._at
        while at < end:
            loads = _LOADS.match(codes, at, end)
            if loads is not None and not self._loads.is_first:
                self._loads.end_all(times[at : loads.end()])
                at = loads.end()
                continue
            code, time = codes[at], times[at]
            if code in self._starts:
                self._starts[code].start = time
            elif code in self._ends:
                self._ends[code].end(time)
            elif code in self._handlers:
                self._handlers[code](at, time)
            at += 1
        self._at = at

    def _job_start(self, _: int, time: float) -> None:
        if self.start is None:
            self.start = time
        self._latest_start = time

    def _job_end(self, index: int, time: float) -> None:
        self._end, self._steps_before_end = time, self.history.places[index]

    def _custom_start(self, index: int, time: float) -> None:
        self._event_starts[self.history.word(index).upper()] = time

    def _custom_end(self, index: int, time: float) -> None:
        name = self.history.word(index).upper()
        start = self._event_starts.pop(name, None)
        if start is not None and start < time:
            self.segments.place(Event(name, start, time), self.history.places[index])

    # ── figures ───────────────────────────────────────────────────────────────────────────────

    def figures(self) -> Figures:
        segments, kind = self.segments, BadputType
        weight = segments.weight()
        productive, last = weight.productive, weight.last_productive
        end = self.end
        if segments.count:
            if end is not None:
                productive += end - segments.greatest_start
                last = segments.greatest
            productive -= self._saves.total
        badput: UnproductiveTimeDict = {
            kind.TPU_INITIALIZATION: self._initialised.total,
            kind.TRAINING_PREP: self._prepared.total,
            kind.DATA_LOADING_SYNC: self._loads.blocking,
            kind.DATA_LOADING_ASYNC: self._loads.total - self._loads.blocking,
            kind.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: self._saves.total,
            kind.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME: self._restores.total,
            kind.PROGRAM_STARTUP: weight.startup,
            kind.WASTED_PROGRESS_FROM_DISRUPTION: weight.wasted,
            kind.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: self._recovery,
            kind.CUSTOM_BADPUT_EVENTS: dict(weight.custom),
        }
        return Figures(
            productive,
            badput,
            segments.disruptions,
            last,
            segments.greatest,
            self.start,
            end,
        )

    @property
    def end(self) -> float | None:
        """When the job ended; None if it goes on, or if steps were recorded after its end."""
        segments = self.segments
        resumed = (
            self._end is not None
            and segments.count > self._steps_before_end
            and segments.last_start > self._end
        )
        return None if resumed else self._end


class Pairs:
    """Starts and ends of one kind.  A start holds until its end or another start."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.total = 0.0

    def end(self, time: float) -> None:
        if self.start is not None:
            self._add(self.start, time)
            self.start = None

    def _add(self, start: float, end: float) -> None:
        self.total += end - start


class Spans(Pairs):
    """Pairs that are kept one by one: there are few."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[float, float]] = []

    def _add(self, start: float, end: float) -> None:
        super()._add(start, end)
        if start < end:
            self.spans.append((start, end))


class _Loads(Pairs):
    """Data loading.  The first load of the job and after a disruption holds the job up, and so,
    by the original's rule, did the last one before it; the others go on beside steps."""

    def __init__(self) -> None:
        super().__init__()
        self.blocking = 0.0
        self.is_first = True
        self._latest = 0.0

    def _add(self, start: float, end: float) -> None:
        super()._add(start, end)
        self._latest = end - start
        if self.is_first:
            self.blocking += end - start
            self.is_first = False

    def end_all(self, times: array[float]) -> None:
        """Of starts and ends in turn, none of them the first load."""
        self.start = None
        self.total += sum(map(sub, times[1::2], times[::2]))
        self._latest = times[-1] - times[-2]

    def disrupted(self) -> None:
        self.blocking += self._latest
        self._latest = 0.0
        self.is_first = True


class Means:
    """The sum of the means of each key's numbers: hosts that save together wait together."""

    def __init__(self) -> None:
        self.total = 0.0
        self._of: dict[str, tuple[int, float]] = {}

    def add(self, timed: tuple[str, float]) -> None:
        key, seconds = timed
        count, total = self._of.get(key, (0, 0.0))
        self._of[key] = count + 1, total + seconds
        before = total / count if count else 0.0
        self.total += (total + seconds) / (count + 1) - before


# ── from figures to answers ───────────────────────────────────────────────────────────────────


def checked(productive: float, total: float) -> float:
    """`productive`, which must fit into `total`: else the log is wrong, which is a ValueError."""
    slack = 1e-6  # seconds: sums of times in seconds since the epoch are that exact
    if not -slack <= productive <= total + slack:
        raise ValueError(
            f"productive time is {productive:.3f} s of a total of {total:.3f} s, which cannot be: "
            "look in the log for a job_end_time before the last step, a job_start_time after the "
            "first, or checkpoints that took longer than the steps"
        )
    return min(max(productive, 0.0), total)


def accounted(
    productive: float, badput: Mapping[BadputType, float | Mapping[str, float]], total: float
) -> UnproductiveTimeDict:
    """Badput without amounts that exceed `total` seconds; time of no kind is OTHER."""
    fitting: UnproductiveTimeDict = {}
    known = productive
    for kind, amount in badput.items():
        if isinstance(amount, Mapping):
            parts = {name: _fitting(part, total) for name, part in amount.items()}
            fitting[kind] = parts
            known += sum(parts.values())
        else:
            fitting[kind] = _fitting(amount, total)
            if kind is not BadputType.DATA_LOADING_ASYNC:
                known += _fitting(amount, total)
    fitting[BadputType.OTHER] = max(total - known, 0.0)
    return fitting


def _fitting(amount: float, total: float) -> float:
    return amount if 0 <= amount <= total else 0.0


def shares(badput: UnproductiveTimeDict, total: float) -> UnproductiveTimeDict:
    """In percent.  An amount that fills all of `total`, or exceeds it, shows as 0."""
    return each_amount(badput, lambda amount: _share(amount, total))


def _share(amount: float, total: float) -> float:
    return amount / total * 100 if 0 < amount < total else 0.0
