"""The steps of one attempt, booked in their order: what was productive, and what was not.

The first steps wait until sixteen more are known, for only then it can be said how long a step of
this attempt takes: what the first took longer is program startup, unless it was recorded that
something was compiled for it: then that is.  A later step that took more
than three times the usual is a stall: what it took longer than usual.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import sub
from typing import Any, Final, NamedTuple

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.timeline import Timeline
from runwatch.views.goodput.track import Piece

WARM_UP_STEPS: Final = 16
FEW_STEPS: Final = 3
"""With fewer steps than this an earlier attempt's ideal is the better guess."""
WINDOW: Final = 256
STALL_FACTOR: Final = 3
LEAST_STALL_NS: Final = 1_000_000


class Cell(NamedTuple):
    """One step of the run: as the last rank to begin it and the last to end it saw it."""

    lap: int
    step: int
    begin_ns: int
    gap: list[Piece]
    end_ns: int
    inside: list[Piece]


class Lap:
    """Steps in rising order, and when each began.  Eight bytes a step."""

    __slots__ = ("begins", "end_ns", "last_step", "_first", "_at")

    def __init__(self) -> None:
        self.begins = array("q")
        self.end_ns = 0
        self.last_step = 0
        self._first: list[int] = []
        """The first step of each run of consecutive steps …"""
        self._at: list[int] = []
        """… and where in `begins` it is."""

    def add(self, step: int, begin_ns: int, end_ns: int) -> None:
        if step != self.last_step + 1 or not self._first:
            self._first.append(step)
            self._at.append(len(self.begins))
        self.begins.append(begin_ns)
        self.last_step = step
        self.end_ns = end_ns

    def extend(self, begins: array[int], end_ns: int) -> None:
        """More steps, consecutive to the last."""
        self.begins.extend(begins)
        self.last_step += len(begins)
        self.end_ns = end_ns

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def first_step(self) -> int:
        return self._first[0]

    def index(self, step: int) -> int:
        """Where the first step that is not below `step` lies; `len` if there is none."""
        run = bisect_left(self._first, step)
        after = self._at[run] if run < len(self._at) else len(self.begins)
        if run:
            return min(self._at[run - 1] + step - self._first[run - 1], after)
        return after

    def step_at(self, index: int) -> int:
        run = bisect_right(self._at, index) - 1
        return self._first[run] + index - self._at[run]

    def state(self) -> dict[str, Any]:
        return {"begins": self.begins, "end": self.end_ns, "first": self._first, "at": self._at}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Lap:
        lap = cls()
        lap.begins, lap.end_ns = array("q", state["begins"]), state["end"]
        lap._first, lap._at = list(state["first"]), list(state["at"])
        lap.last_step = lap.step_at(len(lap) - 1)
        return lap


def median(values: Sequence[int]) -> int:
    """The lower of the middle two when there are two: a step errs upwards, if at all."""
    return sorted(values)[(len(values) - 1) // 2]


@dataclass(slots=True)
class Pace:
    """How long a step usually takes: the median of the last few hundred, renewed now and then."""

    usual_ns: int | None = None
    recent: list[int] = field(default_factory=list)
    period: int = WARM_UP_STEPS
    until_renewal: int = WARM_UP_STEPS

    def start(self, samples: Sequence[int]) -> None:
        self.usual_ns = median(samples)
        self.recent = list(samples)

    def add(self, sample: int) -> None:
        self.recent.append(sample)
        self.until_renewal -= 1
        if not self.until_renewal:
            self._renew()

    def extend(self, samples: Sequence[int]) -> None:
        """No more than are left until the next renewal."""
        self.recent.extend(samples)
        self.until_renewal -= len(samples)
        if not self.until_renewal:
            self._renew()

    def _renew(self) -> None:
        del self.recent[:-WINDOW]
        self.usual_ns = median(self.recent)
        self.until_renewal = self.period = min(2 * self.period, WINDOW)

    def is_stall(self, own_ns: int) -> bool:
        usual = self.usual_ns
        if usual is None:
            return False
        return own_ns > STALL_FACTOR * usual and own_ns - usual > LEAST_STALL_NS


Quotas = Sequence[tuple[int, int]]
"""How unclaimed time is spent, in order: so many nanoseconds, class; the last has no limit."""


def claimed_ns(pieces: Iterable[Piece], start: int, end: int) -> int:
    claimed = 0
    for a, b, _ in pieces:
        if a < start:
            a = start
        if b > end:
            b = end
        if b > a:
            claimed += b - a
    return claimed


def fill(timeline: Timeline, pieces: Iterable[Piece], end_ns: int, quotas: Quotas) -> None:
    """Go on to `end_ns`: pieces have their class, the rest is given out as `quotas` says."""
    if len(quotas) == 1:
        spent = quotas[0][1]
        for start, end, claimed in pieces:
            timeline.append(start if start < end_ns else end_ns, spent)
            timeline.append(end if end < end_ns else end_ns, claimed)
        timeline.append(end_ns, spent)
        return
    left = iter(quotas)
    quota, spent = next(left)

    def give(until: int) -> None:
        nonlocal quota, spent
        while timeline.end_ns < until:
            share = min(until - timeline.end_ns, quota)
            timeline.append(timeline.end_ns + share, spent)
            quota -= share
            if not quota:
                quota, spent = next(left)

    for start, end, claimed in pieces:
        give(min(start, end_ns))
        timeline.append(min(end, end_ns), claimed)
    give(end_ns)


REST: Final = 1 << 62


class Books:
    __slots__ = (
        "inferred_ns", "laps", "pace", "steps", "timeline", "_lap", "_warming",
    )  # fmt: skip

    def __init__(self, start_ns: int) -> None:
        self.timeline = Timeline(start_ns)
        self.laps: list[Lap] = []
        self.pace = Pace()
        self.steps = 0
        self.inferred_ns = 0
        """How much of what was booked is a guess: the most by which a class can be wrong."""
        self._lap = -1
        self._warming: list[Cell] | None = []

    @property
    def end_ns(self) -> int:
        return self.timeline.end_ns

    @property
    def first_step(self) -> int | None:
        if self.laps:
            return self.laps[0].first_step
        return self._warming[0].step if self._warming else None

    @property
    def last_step(self) -> int | None:
        if self._warming:
            return self._warming[-1].step
        return self.laps[-1].last_step if self.laps else None

    def add(self, cell: Cell) -> None:
        if self._warming is None:
            self._book(cell)
            return
        self._warming.append(cell)
        if len(self._warming) > WARM_UP_STEPS:
            self.settle()

    def settle(self, prior_ns: int | None = None) -> None:
        """Book the first steps; where they are few, `prior_ns` of an earlier attempt helps."""
        cells, self._warming = self._warming, None
        if not cells:
            return
        own = self._own_times(cells)
        if len(own) > FEW_STEPS or (len(own) > 1 and prior_ns is None):
            self.pace.start(own[1:])
        elif prior_ns is not None:
            self.pace.start([prior_ns])
        self._book_first(cells[0], own[0])
        for cell in cells[1:]:
            self._book(cell, sampled=True)

    def fork(self) -> Books:
        """Books that go on where these end, to be thrown away."""
        copy = Books(self.end_ns)
        copy.pace = Pace(
            self.pace.usual_ns, list(self.pace.recent), self.pace.period, self.pace.until_renewal
        )
        copy._lap = self._lap
        copy._warming = None if self._warming is None else list(self._warming)
        return copy

    def extend(self, step: int, times: array[int]) -> int:
        """Steps from `step` on, each lasting until the next time; how many of them were booked.

        None if there is anything to see in them: then each is looked at.
        """
        lap = self.laps[-1] if self.laps else None
        if self._warming is not None or lap is None or step != lap.last_step + 1:
            return 0
        if times[0] != self.end_ns:
            return 0
        del times[self.pace.until_renewal + 1 :]
        own = list(map(sub, islice(times, 1, None), times))
        if not own or self.pace.is_stall(max(own)) or min(own) < 0:
            return 0
        self.timeline.append(times[-1], Spent.PRODUCTIVE)
        lap.extend(times[:-1], times[-1])
        self.steps += len(own)
        self.pace.extend(own)
        return len(own)

    # ── booking ───────────────────────────────────────────────────────────────────────────────

    def _own_times(self, cells: Sequence[Cell]) -> list[int]:
        ends = [self.end_ns]
        for cell in cells:
            ends.append(max(cell.end_ns, ends[-1]))
        return [
            end - max(cell.begin_ns, before)
            - claimed_ns(cell.inside, max(cell.begin_ns, before), end)
            for cell, (before, end) in zip(cells, pairwise(ends), strict=True)
        ]  # fmt: skip

    def _book_first(self, cell: Cell, own_ns: int) -> None:
        before = self.end_ns
        begin = max(cell.begin_ns, before)
        self.inferred_ns += begin - before - claimed_ns(cell.gap, before, begin)
        fill(self.timeline, cell.gap, begin, [(REST, Spent.TRAINING_PREPARATION)])
        usual = self.pace.usual_ns
        compiled = any(p[2] == Spent.PROGRAM_STARTUP for p in (*cell.gap, *cell.inside))
        extra = 0 if usual is None or compiled else max(0, own_ns - usual)
        if usual is None and not compiled:
            self.inferred_ns += own_ns
        elif extra and usual is not None:
            self.inferred_ns += usual
        quotas = [(extra, int(Spent.PROGRAM_STARTUP))] if extra else []
        fill(self.timeline, cell.inside, cell.end_ns, [*quotas, (REST, Spent.PRODUCTIVE)])
        self._count(cell, begin)

    def _book(self, cell: Cell, *, sampled: bool = False) -> None:
        timeline, (_, _, begin, gap, end, inside) = self.timeline, cell
        before = timeline.end_ns
        if begin > before:
            fill(timeline, gap, begin, [(REST, Spent.UNATTRIBUTED)])
        else:
            begin = before
        own = max(end - begin, 0)
        if inside:
            own -= claimed_ns(inside, begin, end)
        usual = self.pace.usual_ns
        if usual is not None and self.pace.is_stall(own):
            self.inferred_ns += usual
            fill(timeline, inside, end, [(usual, Spent.PRODUCTIVE), (REST, Spent.STALL)])
        elif inside:
            fill(timeline, inside, end, [(REST, Spent.PRODUCTIVE)])
        else:
            timeline.append(end, Spent.PRODUCTIVE)
        if not sampled:
            self.pace.add(own)
        self._count(cell, begin)

    def _count(self, cell: Cell, begin_ns: int) -> None:
        self.steps += 1
        lap = self.laps[-1] if self.laps else None
        if lap is None or cell.lap != self._lap or cell.step <= lap.last_step:
            lap = Lap()
            self.laps.append(lap)
            self._lap = cell.lap
        lap.add(cell.step, begin_ns, self.timeline.end_ns)

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        pace = self.pace
        return {
            "timeline": self.timeline.state(),
            "laps": [lap.state() for lap in self.laps],
            "pace": [pace.usual_ns, pace.recent, pace.period, pace.until_renewal],
            "steps": self.steps,
            "inferred": self.inferred_ns,
            "lap": self._lap,
            "warming": self._warming,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Books:
        books = cls(0)
        books.timeline = Timeline.of_state(state["timeline"])
        books.laps = [Lap.of_state(lap) for lap in state["laps"]]
        books.pace = Pace(*state["pace"])
        books.steps, books.inferred_ns = state["steps"], state["inferred"]
        books._lap = state["lap"]
        warming = state["warming"]
        books._warming = None if warming is None else [_cell(cell) for cell in warming]
        return books


def _cell(state: Sequence[Any]) -> Cell:
    lap, step, begin, gap, end, inside = state
    return Cell(lap, step, begin, [tuple(p) for p in gap], end, [tuple(p) for p in inside])
