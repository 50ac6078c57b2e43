"""The original's rules: from a job's log to where its time went.

`Fold` goes over a history once and then only over what is new; its figures are those that a
calculation from the beginning gives.  The rules are kept as they are, also where they leave time
out or count it twice, because dashboards and tests rely on them.  The strict account, which does
neither, is in `views/goodput`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    STEP,
)
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.segments import Event, Segments
from runwatch.compat.goodput.kinds import BadputType, UnproductiveTimeDict

_STEPS: Final = bytes([STEP])
_LOADED_STEPS: Final = re.compile(rb"(?:\x%02x\x%02x\x%02x){2,}" % (LOAD_START, LOAD_END, STEP))
"""The usual loop: load a batch, do a step."""

_LOOK: Final = 1024
_BULK: Final = 3 * 16384
"""So many entries are copied out at a time."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each kind, before anything is made of them."""

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
        self._next_break = 0
        self._next_note = 0
        self._next_checkpoint = 0
        self.segments = Segments(history, self._disrupted)
        self.start: float | None = None
        self._latest_start: float | None = None
        self._end: float | None = None
        self._end_at = 0
        self._initialised = Pairs()
        self._prepared = Pairs()
        self._recovery = 0.0
        self._loads = _Loads()
        self._saves = Means()
        self._restores = Means()
        self._checkpoints = {SAVE: self._saves, RESTORE: self._restores}
        self._names: dict[str, int] = {}
        """Types of custom events, as they are told → number."""
        self._types: dict[int, int] = {}
        self._event_starts: dict[int, float] = {}
        self._handlers = {
            JOB_START: self._job_start,
            JOB_END: self._job_end,
            LOAD_START: self._load_start,
            LOAD_END: self._load_end,
            INIT_START: self._init_start,
            INIT_END: self._init_end,
            PREPARATION_START: self._preparation_start,
            PREPARATION_END: self._preparation_end,
            CUSTOM_START: self._custom_start,
            CUSTOM_END: self._custom_end,
        }

    def advance(self) -> None:
        """Take in what the history has got since the last time."""
        codes = self.history.codes
        at, end = self._at, len(codes)
        while at < end:
            at = self._steps(at)
            at = self._loaded_steps(at)
            at = self._others(at)
        self._at = end
        self._take_checkpoints()
        self.segments.settle()

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    def _steps(self, at: int) -> int:
        """From `at` up to the next entry that is no step."""
        end = self._end_of_steps(at)
        breaks = self.history.break_at
        while at < end:
            until = end
            if self._next_break < len(breaks):
                if breaks[self._next_break] == at:
                    self.segments.jump(at, self.history.break_number[self._next_break])
                    self._next_break += 1
                    at += 1
                    continue
                until = min(end, breaks[self._next_break])
            self.segments.extend(at, until - at)
            at = until
        return end

    def _end_of_steps(self, at: int) -> int:
        codes = self.history.codes
        while some := codes[at : at + _LOOK]:
            rest = some.lstrip(_STEPS)
            at += len(some) - len(rest)
            if rest:
                break
        return at

    def _loaded_steps(self, at: int) -> int:
        """As far as each step has its load before it, one load and one step after the other."""
        found = _LOADED_STEPS.match(self.history.codes, at)
        if found is None or self._loads.is_first or self.segments.may_repeat:
            return at
        end, breaks = min(found.end(), at + _BULK), self.history.break_at
        if self._next_break < len(breaks) and breaks[self._next_break] < end:
            end = at + (breaks[self._next_break] - at) // 3 * 3
        count = (end - at) // 3
        if count:
            times = self.history.times[at:end]
            self._loads.add_all(sum(map(sub, times[1::3], times[::3])), times[-2] - times[-3])
            self.segments.extend(at + 2, count, 3)
        return end

    def _disrupted(self, last_start: float) -> None:
        if self._latest_start is not None and self._latest_start > last_start:
            self._recovery += self._latest_start - last_start
        self._loads.disrupted()

    # ── other entries ─────────────────────────────────────────────────────────────────────────

    def _others(self, at: int) -> int:
        """From `at` up to the next step."""
        codes, times, handlers = self.history.codes, self.history.times, self._handlers
        end = codes.find(STEP, at)
        if end < 0:
            end = len(codes)
        for index in range(at, end):
            handler = handlers.get(codes[index])
            if handler is not None:
                handler(index, times[index])
        return end

    def _job_start(self, _: int, time: float) -> None:
        if self.start is None:
            self.start = time
        self._latest_start = time

    def _job_end(self, index: int, time: float) -> None:
        self._end, self._end_at = time, index

    def _load_start(self, _: int, time: float) -> None:
        self._loads.pairs.start = time

    def _load_end(self, _: int, time: float) -> None:
        self._loads.end(time)

    def _init_start(self, _: int, time: float) -> None:
        self._initialised.start = time

    def _init_end(self, _: int, time: float) -> None:
        self._initialised.end(time)

    def _preparation_start(self, _: int, time: float) -> None:
        self._prepared.start = time

    def _preparation_end(self, _: int, time: float) -> None:
        self._prepared.end(time)

    def _custom_start(self, index: int, time: float) -> None:
        self._event_starts[self._type(index)] = time

    def _custom_end(self, index: int, time: float) -> None:
        type_ = self._type(index)
        start = self._event_starts.pop(type_, None)
        if start is not None and start < time:
            self.segments.place(Event(type_, start, time))

    def _type(self, index: int) -> int:
        row = self._note(index)
        known = self._types.get(row)
        if known is None:
            name = self.history.words[row].upper()
            known = self._types[row] = self._names.setdefault(name, len(self._names))
        return known

    def _take_checkpoints(self) -> None:
        """Those among the new notes: where in the log they lie does not matter."""
        history, known = self.history, self._next_checkpoint
        self._next_checkpoint = len(history.note_at)
        codes, took, means = history.codes, history.checkpoints.took, self._checkpoints
        for at, row in zip(history.note_at[known:], history.note_row[known:], strict=True):
            if (of_its_kind := means.get(codes[at])) is not None:
                of_its_kind.add(*took(row))

    def _note(self, index: int) -> int:
        """As `history.note`, of an entry that is not before the last one asked about."""
        at, place = self.history.note_at, self._next_note
        while at[place] < index:
            place += 1
        self._next_note = place
        return self.history.note_row[place]

    # ── figures ───────────────────────────────────────────────────────────────────────────────

    def figures(self) -> Figures:
        segments, kind = self.segments, BadputType
        weight = segments.weight()
        productive, last = weight.productive, weight.last_productive
        end = self.end
        if segments.last_at >= 0:
            if end is not None:
                productive += end - segments.greatest_start
                last = segments.greatest
            productive -= self._saves.total
        names = list(self._names)
        badput: UnproductiveTimeDict = {
            kind.TPU_INITIALIZATION: self._initialised.total,
            kind.TRAINING_PREP: self._prepared.total,
            kind.DATA_LOADING_SYNC: self._loads.blocking,
            kind.DATA_LOADING_ASYNC: self._loads.pairs.total - self._loads.blocking,
            kind.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: self._saves.total,
            kind.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME: self._restores.total,
            kind.PROGRAM_STARTUP: weight.startup,
            kind.WASTED_PROGRESS_FROM_DISRUPTION: weight.wasted,
            kind.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: self._recovery,
            kind.CUSTOM_BADPUT_EVENTS: {
                names[type_]: seconds for type_, seconds in weight.custom.items()
            },
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
        """When the job ended; None if it goes on, or did steps after it was said to have ended."""
        segments = self.segments
        resumed = (
            self._end is not None
            and segments.last_at > self._end_at
            and segments.last_start > self._end
        )
        return None if resumed else self._end


class Pairs:
    """Starts and ends of one kind.  A start holds until its end or another start."""

    __slots__ = ("start", "total")

    def __init__(self) -> None:
        self.start: float | None = None
        self.total = 0.0

    def end(self, time: float) -> float | None:
        if self.start is None:
            return None
        seconds = time - self.start
        self.start = None
        self.total += seconds
        return seconds


class _Loads:
    """Data loading.  The first load of the job and after a disruption holds the job up, and so,
    by the original's rule, did the last one before it; the others go on beside steps."""

    def __init__(self) -> None:
        self.pairs = Pairs()
        self.blocking = 0.0
        self.is_first = True
        self._latest: float | None = None

    def end(self, time: float) -> None:
        seconds = self.pairs.end(time)
        if seconds is None:
            return
        self._latest = seconds
        if self.is_first:
            self.blocking += seconds
            self.is_first = False

    def add_all(self, total: float, latest: float) -> None:
        self.pairs.start = None
        self.pairs.total += total
        self._latest = latest

    def disrupted(self) -> None:
        self.blocking += self._latest or 0.0
        self._latest = None
        self.is_first = True


class Means:
    """The sum of the means of each key's numbers: hosts that save together wait together."""

    def __init__(self) -> None:
        self.total = 0.0
        self._of: dict[str, tuple[int, float]] = {}

    def add(self, key: str, seconds: float) -> None:
        count, total = self._of.get(key, (0, 0.0))
        self._of[key] = count + 1, total + seconds
        before = total / count if count else 0.0
        self.total += (total + seconds) / (count + 1) - before


# ── what is made of figures ───────────────────────────────────────────────────────────────────


def checked(productive: float, total: float) -> float:
    """Steps cannot take longer than the job; if they seem to, the log is wrong."""
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
    """Badput that fits into `total` seconds, with what nobody accounts for as OTHER."""
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
    """In percent.  What fills all of `total` shows as 0, as what does not fit."""
    return {
        kind: {name: _share(part, total) for name, part in amount.items()}
        if isinstance(amount, dict)
        else _share(amount, total)
        for kind, amount in badput.items()
    }


def _share(amount: float, total: float) -> float:
    return amount / total * 100 if 0 < amount < total else 0.0
