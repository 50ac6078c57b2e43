"""The account of a run: every nanosecond from its first start to now or its end, in one class.

`drawing.py` makes a `Goodput`.  Here are its shapes, and the answers about any window of time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from runwatch.views.goodput.classes import FIRST_CUSTOM, RECOVERY, WORK, ClassNames, Spent
from runwatch.views.goodput.ledger import AttemptKey
from runwatch.views.goodput.steps.laps import Lap
from runwatch.views.goodput.timeline import Interval, Timeline
from runwatch.views.runs import AT_ONCE_NS

Range = tuple[int, int]

DOUBTFUL: Final = (Spent.STALL, Spent.SLOW_STEPS, Spent.UNATTRIBUTED)
"""Classes that were judged idle only because nothing was recorded."""


@dataclass(frozen=True, slots=True)
class Life:
    """When a process of an attempt lived, and how it ended."""

    attempt: AttemptKey
    rank: int
    start_ns: int
    end_ns: int | None = None
    ok: bool = True
    """Whether the process ended well, if it ended."""
    cause: str = ""
    """Why it ended badly, in words."""
    exact: bool = True
    """False: the end was not seen, and `end_ns` is when the process was last heard of."""
    key: str = ""
    """The key of its track."""
    lived_ns: int | None = None
    """The process surely lived until then; None: until `end_ns`."""
    done: bool | None = True
    """The process ended well and said that all work was done, which exit code 0 does not say.
    None: perhaps."""
    heard_ns: int = 0
    """When the process was last heard of; 0: not known."""

    @property
    def until_ns(self) -> int:
        return self.heard_ns if self.end_ns is None else self.end_ns


def went_on(lives: Sequence[Life], next_ns: int) -> bool:
    """Whether all processes of an attempt went on when the next began: that is another job."""
    return min((life.until_ns for life in lives), default=0) > next_ns + AT_ONCE_NS


@dataclass(frozen=True, slots=True)
class Disruption:
    """An attempt that was stopped, and what that cost."""

    attempt: int
    time_ns: int
    cause: str
    hung: bool
    """The attempt was stalled when it was stopped."""
    lost_steps: int
    """Completed steps that had to be done again."""
    wasted_ns: int
    recovery_ns: int | None
    """Until the next attempt began; None while there is none."""
    back_ns: int | None
    """Until the next attempt's first step began."""
    hang_ns: int = 0
    """How long the attempt had hung when it was stopped."""
    warm_up_ns: int | None = None
    """From the next attempt's start until its steps count again: its startup, preparation and
    restore.  None: not known, or not yet."""

    @property
    def cost_ns(self) -> int:
        """The whole cost: the hang, the lost work, the recovery and the warm-up after it.

        An unknown warm-up counts as the time to the first step, which is the least that it can be.
        """
        warm_up_ns = self.warm_up_ns
        if warm_up_ns is None and self.back_ns is not None:
            warm_up_ns = max(0, self.back_ns - (self.recovery_ns or 0))
        return self.hang_ns + self.wasted_ns + (self.recovery_ns or 0) + (warm_up_ns or 0)


@dataclass(frozen=True, slots=True)
class AttemptAccount:
    attempt: int
    start_ns: int
    stop_ns: int
    """When the attempt ended or was stopped; now, if it goes on."""
    steps: int
    first_step: int | None
    last_step: int | None
    ideal_step_ns: int | None
    stall_limit_ns: int | None = None
    """A pause longer than this is a stall, judged by the attempt's last steps."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Work from `start_ns` to `end_ns` was done again from `back_ns` on, beginning with `step`."""

    start_ns: int
    end_ns: int
    back_ns: int
    step: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing of the run could go on: what it needed had no machine, or was being started."""

    start_ns: int
    end_ns: int
    spent: Spent
    who: str = ""
    """The pods that were waited for; "": the job, in its scheduler's queue."""
    said: str = ""
    """What the cluster said, if it did."""


@dataclass(frozen=True, slots=True)
class RankShare:
    """The steps of one rank, and how long the other ranks waited for it."""

    rank: int
    steps: int
    mean_step_ns: int | None
    awaited_steps: int
    awaited_ns: int


@dataclass(frozen=True, slots=True)
class Account:
    """How a stretch of a run was spent; `spent_ns` sums to `end_ns - start_ns` exactly."""

    start_ns: int
    end_ns: int
    spent_ns: Mapping[str, int]
    """By class name.  Every known class is there; custom classes only if they occur."""

    @property
    def total_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def counted_ns(self) -> int:
        """The time that goodput is a share of: all but excluded time."""
        return self.total_ns - self.spent_ns["excluded"]

    @property
    def goodput(self) -> float | None:
        """Productive share of the counted time, 0 to 1; None when no time is counted."""
        return self.spent_ns["productive"] / self.counted_ns if self.counted_ns else None


@dataclass(slots=True)
class Stretch:
    timeline: Timeline
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Goodput:
    """The account of a whole run; `draw_up` makes it, the methods answer questions."""

    names: ClassNames
    start_ns: int
    end_ns: int
    live: bool
    """Whether the run goes on: the account then ends now."""
    inferred_ns: int
    """The most by which any class can be wrong because something was not recorded."""
    attempts: Sequence[AttemptAccount]
    disruptions: Sequence[Disruption]
    ranks: Sequence[RankShare]
    steps: int
    """Steps whose work was kept."""
    max_productive_step: int | None
    ideal_step_ns: int | None
    _stretches: Sequence[Stretch]
    _redone: Sequence[Range]
    _starts: Sequence[int] = field(default_factory=tuple)
    worked: Sequence[Range] = ()
    """Where devices were seen at work while the program recorded nothing: this time was not idle.
    In order, without overlap."""
    turns: Sequence[Turn] = ()
    """Where the run went back to an earlier step, and which work was lost by that."""
    laps: Sequence[Lap] = ()
    """All steps, in order of time."""
    waits: Sequence[Wait] = ()
    """When machines or pods were waited for, in order of time."""

    def step_at(self, time_ns: int) -> tuple[int | None, int | None, int | None]:
        """The last step that began by `time_ns`, when it began, and when the next step began."""
        begun = [lap for lap in self.laps if lap.begins[0] <= time_ns]
        if not begun:
            return None, None, None
        lap, after = begun[-1], self.laps[len(begun) : len(begun) + 1]
        at = bisect_right(lap.begins, time_ns) - 1
        if at + 1 < len(lap):
            return lap.step_at(at), lap.begins[at], lap.begins[at + 1]
        return lap.step_at(at), lap.begins[at], after[0].begins[0] if after else None

    def stretch_around(self, time_ns: int) -> tuple[int, int]:
        """The interval of one class that `time_ns` lies in.  The search begins a minute before and
        after, and widens until it sees both ends."""
        reach = 60_000_000_000
        while True:
            low, high = time_ns - reach, time_ns + reach
            interval = next(i for i in self.intervals(low, high) if i[0] <= time_ns < i[1])
            whole = interval[0] > max(low, self.start_ns) or low <= self.start_ns
            if whole and (interval[1] < min(high, self.end_ns) or high >= self.end_ns):
                return interval[0], interval[1]
            reach *= 8

    def account(
        self,
        since_ns: int | None = None,
        until_ns: int | None = None,
        *,
        exclude: Iterable[Range] = (),
    ) -> Account:
        """How the window was spent.  The window is clipped to the run."""
        start = (
            self.start_ns if since_ns is None else min(max(since_ns, self.start_ns), self.end_ns)
        )
        end = self.end_ns if until_ns is None else max(min(until_ns, self.end_ns), start)
        totals = self._totals(start, end)
        for a, b in normalised(exclude):
            a, b = max(a, start), min(b, end)
            if a < b:
                for spent, ns in enumerate(self._totals(a, b)):
                    totals[spent] -= ns
                totals[Spent.EXCLUDED] += b - a
        return Account(start, end, self._named(totals))

    def each(self, edges: Sequence[int]) -> Iterator[Account]:
        """The account of each stretch between two edges.  Edges ascend and lie within the run.

        The same as `account` of each stretch, for half the work.
        """
        known = self._known()
        before = self._until(edges[0], known)
        for start, end in pairwise(edges):
            now = self._until(end, known)
            totals = [b - a for a, b in zip(before, now, strict=True)]
            self._waste(totals, start, end)
            before = now
            yield Account(start, end, self._named(totals))

    def over_time(
        self, buckets: int, since_ns: int | None = None, until_ns: int | None = None
    ) -> list[Account]:
        """The window in equal parts, so that goodput can be drawn against time."""
        whole = self.account(since_ns, until_ns)
        edges = [whole.start_ns + whole.total_ns * i // buckets for i in range(buckets + 1)]
        return [self.account(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]

    def intervals(
        self,
        since_ns: int | None = None,
        until_ns: int | None = None,
        *,
        exclude: Iterable[Range] = (),
    ) -> Iterator[tuple[int, int, str]]:
        """The intervals (start, end, class name), without gap or overlap."""
        start = self.start_ns if since_ns is None else max(since_ns, self.start_ns)
        end = self.end_ns if until_ns is None else min(until_ns, self.end_ns)
        intervals = _overlaid(self._plain(start, end), self._redone, _waste)
        intervals = _overlaid(intervals, normalised(exclude), _exclude)
        for a, b, spent in _merged(intervals):
            yield a, b, self.names.name(spent)

    def of_class(
        self, spent: Spent, since_ns: int, until_ns: int, least_ns: int = 0
    ) -> Iterator[Interval]:
        """The intervals of one class that last `least_ns` or longer.  Quick for a rare class or for
        few long intervals; not for productive or wasted time."""
        for stretch in self._stretches[self._first(since_ns) :]:
            if stretch.start_ns >= until_ns:
                return
            yield from stretch.timeline.of_class(
                spent, max(since_ns, stretch.start_ns), min(until_ns, stretch.end_ns), least_ns
            )

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _named(self, totals: Sequence[int]) -> dict[str, int]:
        return {
            self.names.name(spent): ns
            for spent, ns in enumerate(totals)
            if ns or spent < FIRST_CUSTOM
        }

    def _totals(self, start: int, end: int) -> list[int]:
        totals = self._raw_totals(start, end)
        self._waste(totals, start, end)
        return totals

    def _waste(self, totals: list[int], start: int, end: int) -> None:
        for a, b in _within(self._redone, start, end):
            raw = self._raw_totals(a, b)
            for spent in WORK:
                totals[spent] -= raw[spent]
                totals[Spent.WASTED_PROGRESS] += raw[spent]

    def _known(self) -> list[list[int]]:
        """The time in each class before each stretch."""
        known = [[0] * len(self.names)]
        for stretch in self._stretches:
            totals = known[-1].copy()
            stretch.timeline.add_totals(stretch.start_ns, stretch.end_ns, totals)
            known.append(totals)
        return known

    def _until(self, end: int, known: Sequence[list[int]]) -> list[int]:
        at = self._first(end)
        totals, stretch = known[at].copy(), self._stretches[at]
        stretch.timeline.add_totals(stretch.start_ns, min(end, stretch.end_ns), totals)
        self._light(totals, self.start_ns, end)
        return totals

    def _raw_totals(self, start: int, end: int) -> list[int]:
        totals = self._told_totals(start, end)
        self._light(totals, start, end)
        return totals

    def _light(self, totals: list[int], start: int, end: int) -> None:
        for a, b in _within(self.worked, start, end):
            recorded = self._told_totals(a, b)
            for spent in DOUBTFUL:
                totals[spent] -= recorded[spent]
                totals[Spent.PRODUCTIVE] += recorded[spent]

    def _told_totals(self, start: int, end: int) -> list[int]:
        totals = [0] * len(self.names)
        for stretch in self._stretches[self._first(start) :]:
            if stretch.start_ns >= end:
                break
            stretch.timeline.add_totals(
                max(start, stretch.start_ns), min(end, stretch.end_ns), totals
            )
        return totals

    def _plain(self, start: int, end: int) -> Iterator[Interval]:
        return _overlaid(self._told(start, end), self.worked, _work)

    def _told(self, start: int, end: int) -> Iterator[Interval]:
        for stretch in self._stretches[self._first(start) :]:
            if stretch.start_ns >= end:
                break
            yield from stretch.timeline.intervals(
                max(start, stretch.start_ns), min(end, stretch.end_ns)
            )

    def productive_ns(self, start_ns: int, end_ns: int) -> int:
        """Time spent on steps in the window, whether their work was kept or not."""
        raw = self._raw_totals(start_ns, end_ns)
        return sum(raw[spent] for spent in WORK)

    def _first(self, start: int) -> int:
        return max(0, bisect_right(self._starts, start) - 1)


def normalised(ranges: Iterable[Range]) -> list[Range]:
    """In order, without overlap; ranges that are empty or run backwards are left out."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _within(ranges: Sequence[Range], start: int, end: int) -> Iterator[Range]:
    first = max(0, bisect_right(ranges, (start, start)) - 1)
    for at in range(first, len(ranges)):
        a, b = ranges[at]
        if a >= end:
            return
        if b > start:
            yield max(a, start), min(b, end)


def _waste(spent: int) -> int:
    return Spent.WASTED_PROGRESS if spent in WORK else spent


def _work(spent: int) -> int:
    return Spent.PRODUCTIVE if spent in DOUBTFUL else spent


def _exclude(spent: int) -> int:
    return Spent.EXCLUDED


def _overlaid(
    intervals: Iterable[Interval], ranges: Sequence[Range], change: Callable[[int], int]
) -> Iterator[Interval]:
    """The same intervals, with their class changed within the ranges."""
    for start, end, spent in intervals:
        at = start
        for a, b in _within(ranges, start, end):
            if a > at:
                yield Interval(at, a, spent)
            yield Interval(a, b, change(spent))
            at = b
        if at < end:
            yield Interval(at, end, spent)


def _merged(intervals: Iterable[Interval]) -> Iterator[Interval]:
    last: Interval | None = None
    for interval in intervals:
        if last is not None and last.spent == interval.spent and last.end_ns == interval.start_ns:
            last = Interval(last.start_ns, interval.end_ns, interval.spent)
            continue
        if last is not None:
            yield last
        last = interval
    if last is not None:
        yield last


def mean_time_between_failures_ns(goodput: Goodput) -> int | None:
    """The mean time per disruption in which the run was not recovering."""
    if not goodput.disruptions:
        return None
    spent_ns = goodput.account().spent_ns
    recovering = sum(spent_ns[spent.name.lower()] for spent in RECOVERY)
    return (goodput.end_ns - goodput.start_ns - recovering) // len(goodput.disruptions)


def mean_time_to_recovery_ns(goodput: Goodput) -> int | None:
    """The mean time from a disruption to the first step after it, where such a step exists."""
    times = [d.back_ns for d in goodput.disruptions if d.back_ns is not None]
    return sum(times) // len(times) if times else None
