"""Finds the steps that are out of line with the steps around them.

A step is judged in a window, not by itself.  Where a program hands work to a device and waits for
it later, nine steps take microseconds and the tenth takes all the time: together they are the pace.
Recurring patterns are the pace too: every third step longer, lengths that vary, a pace that changes
and stays.

A step is out of line if it takes three times as long as the shorter steps nearby, and at least a
second more, and at most one step in twenty does so.  It is *slow* if the run went on before a
person would have said that it hangs, and a *stall* if not (`views/pace.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Final, NamedTuple

from runwatch.views.goodput.classes import Spent
from runwatch.views.pace import stall_ns

AROUND: Final = 256
"""This many steps before and after a step tell what is usual for it."""
FEW: Final = 3
"""With fewer other steps than this, nothing is known yet."""
FEW_STEPS: Final = 40
"""Among fewer steps than this, two may hang."""
SLOW_FACTOR: Final = 3
LEAST_EXCESS_NS: Final = 1_000_000_000
SMOOTH: Final = 9
LONGEST_STRETCH: Final = 64
"""A slower stretch longer than this is another pace."""
SETTLED: Final = 16
"""This many steps at the usual pace, before and after, make a slow stretch an exception."""
MOST_PAUSES: Final = 64
SAME_SIZE: Final = 2.0
QUEUED: Final = 64
"""A device is never thought to be more steps than this behind its program."""
DISPATCH_SHARE: Final = 0.35
DEVICE_SHARE: Final = 0.6
"""The same where the program's library is known to hand work over."""
HAND_OVER_NS: Final = 100_000_000
_NOTHING: Final = 0.05
_OUTSIDE: Final = 2
_MOST: Final = 0.5


class Excess(NamedTuple):
    """The time of a step, and of the gap before it, beyond the usual."""

    own_ns: int
    rest_ns: int
    spent: Spent
    """PRODUCTIVE: the step is long, but in line with others."""


class Pause(NamedTuple):
    step: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a step usually takes, and how long a pause may be before it is a stall."""

    usual_ns: int | None = None
    limit_ns: int = 0

    def is_stall(self, ns: int) -> bool:
        return self.usual_ns is not None and ns > self.limit_ns

    @classmethod
    def of(cls, usual_ns: int | None) -> Pace:
        return cls() if usual_ns is None else cls(usual_ns, stall_ns(usual_ns))


@dataclass(slots=True)
class Took:
    """Columns, one row for each step: its number, its own time, the unclaimed time before it."""

    step: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)
    asynchronous: bool = False

    def __len__(self) -> int:
        return len(self.step)

    def add(self, step: int, own_ns: int, rest_ns: int) -> None:
        self.step.append(step)
        self.own.append(own_ns)
        self.rest.append(rest_ns)

    def between(self, first: int, last: int) -> Took:
        rows = (self.step[first:last], self.own[first:last], self.rest[first:last])
        return Took(*rows, self.asynchronous)

    def last(self, count: int) -> Took:
        return self.between(max(0, len(self) - count), len(self))

    def then(self, other: Took) -> Took:
        return Took(self.step + other.step, self.own + other.own, self.rest + other.rest)

    def state(self) -> list[list[int]]:
        return [self.step, self.own, self.rest]


@dataclass(slots=True)
class Judgement:
    excess: dict[int, Excess] = field(default_factory=dict)
    """By row."""
    pauses: list[Pause] = field(default_factory=list)
    """The steps that are out of line, slow or stalled."""


def judge(took: Took, first: int, pauses: Sequence[Pause], last: int) -> Judgement:
    """Judges the rows from `first` up to `last` by all rows of `took`.

    `pauses` are the steps of this attempt that were out of line before.
    """
    judgement = Judgement()
    if _are_alike(took, first, last):
        return judgement
    for start in range(first, last, AROUND):
        stop = min(start + AROUND, last)
        window = range(max(0, start - AROUND), min(len(took), stop + AROUND))
        _judge_some(took, range(start, stop), window, pauses, judgement)
    return judgement


def _are_alike(took: Took, first: int, last: int) -> bool:
    """Whether no row is a second longer than another, so that none is out of line."""
    own = took.own[max(0, first - AROUND) : last + AROUND]
    rest = took.rest[max(0, first - AROUND) : last + AROUND]
    return max(own) + max(rest) - min(own) - min(rest) < LEAST_EXCESS_NS


def is_plain(took: Took, first: int, last: int) -> bool:
    """Whether there is nothing to judge: no row is a second longer than another."""
    if any(took.rest[max(0, first - AROUND) : last + AROUND]):
        return False
    own = took.own[max(0, first - AROUND) : last + AROUND]
    return max(own) - min(own) < LEAST_EXCESS_NS


def pace_of(took: Took, pauses: Sequence[Pause], prior: Pace) -> Pace:
    """As of the last row."""
    recent = took.last(2 * AROUND)
    total = list(map(add, recent.own, recent.rest))
    if len(total) < FEW and (prior.usual_ns is not None or not total):
        return prior
    odd = {pause.step for pause in pauses}
    plain = [ns for step, ns in zip(recent.step, total, strict=True) if step not in odd] or total
    middle_ns, high_ns = _usual(plain)
    if took.asynchronous:  # long steps are no exceptions: the program waits for the device in them
        middle_ns, high_ns = sum(plain) // len(plain), max(plain)
    return Pace(middle_ns, stall_ns(high_ns, max((p.took_ns for p in pauses), default=0)))


def by_prior(took: Took, prior: Pace) -> Judgement:
    """Judges one or two steps, by the pace of earlier steps alone."""
    judgement = Judgement()
    usual = prior.usual_ns
    for row, (own, rest) in enumerate(zip(took.own, took.rest, strict=True)):
        if usual is not None and own + rest > prior.limit_ns:
            over = own + rest - usual
            own_over = min(max(own - usual, 0), over)
            judgement.excess[row] = Excess(own_over, over - own_over, Spent.STALL)
    return judgement


def is_asynchronous(took: Took, share: float = DISPATCH_SHARE) -> bool:
    """Whether steps only hand work over, judged by their lengths: many take next to nothing, now or
    at first, or far less than the unclaimed time between them.

    The longest step does not count: beside one long hang, every step is next to nothing.  Less than
    `share` of the mean is next to nothing.
    """
    if len(took) <= FEW + 1 or _are_work(took, share):
        return False
    took = _but_the_longest(took, hangs=share < DEVICE_SHARE)
    own = took.own[1:]
    if waits_outside(took):
        return True
    mean = (sum(took.own) + sum(took.rest)) / len(took)
    if min(own) >= share * mean:
        return False
    if _runs_ahead(own, mean):
        return True
    for some in (own, own[: 2 * FEW], own[-2 * AROUND :]):
        if sorted(some)[len(some) // 2] < share * mean:
            return True
    return False


def _are_work(took: Took, share: float) -> bool:
    """Whether no step takes next to nothing: then a closer look is not needed."""
    total = list(map(add, took.own, took.rest))
    at, (second_ns, _) = total.index(max(total)), sorted(total)[-2:]
    if second_ns > stall_ns(sorted(total)[len(total) // 2]):
        return False  # the hangs must be left out first
    inside, outside = sum(took.own) - took.own[at], sum(took.rest) - took.rest[at]
    if outside >= _OUTSIDE * inside:
        return False
    mean = (inside + outside) / (len(took) - 1)
    return min(took.own) >= max(share, _NOTHING) * mean


def _but_the_longest(took: Took, hangs: bool) -> Took:
    """Without the longest step.  `hangs`: also without others that are as long as a stall, if steps
    usually take longer than a hand-over."""
    total = list(map(add, took.own, took.rest))
    at = total.index(max(total))
    middle_ns = sorted(total)[len(total) // 2]
    if hangs and middle_ns >= HAND_OVER_NS:
        most, others = stall_ns(middle_ns), Took()
        for row, ns in enumerate(total):
            if ns <= most and row != at:
                others.add(took.step[row], took.own[row], took.rest[row])
        return others
    return took.between(0, at).then(took.between(at + 1, len(took)))


def waits_outside(took: Took) -> bool:
    """Whether the program waits for the device between steps, not in them: most time is between
    steps, or a pause comes before most runs of very short steps."""
    inside, outside = sum(took.own), sum(took.rest)
    if not outside:
        return False
    if outside >= _OUTSIDE * inside:
        return True
    mean = (inside + outside) / len(took)
    if min(took.own) >= _NOTHING * mean:
        return False
    starts = after_a_pause = 0
    short = DISPATCH_SHARE * mean
    rows = zip([0, *took.own], took.own, [*took.own[1:], mean], took.rest, strict=False)
    for before, own, after, rest in rows:
        if own < short <= before and after < short:
            starts += 1
            after_a_pause += rest >= mean
    return starts > 0 and after_a_pause >= _MOST * starts


def _runs_ahead(own: Sequence[int], mean: float) -> bool:
    """Whether several steps in a row took nothing, more than once: the program runs ahead after
    each wait, until the device is as far behind as it may be."""
    runs = length = 0
    for ns in own:
        length = length + 1 if ns < _NOTHING * mean else 0
        runs += length == 2
    return runs > 1


def _judge_some(
    took: Took, rows: range, window: range, pauses: Sequence[Pause], judgement: Judgement
) -> None:
    own, rest = took.own[window.start : window.stop], took.rest[window.start : window.stop]
    total = list(map(add, own, rest))
    odd: dict[int, Spent] = {}
    spikes: set[int] = set()
    middle_ns, high_ns = 0, 0
    if len(total) > FEW and max(total) - min(total) >= LEAST_EXCESS_NS:
        odd = dict.fromkeys(_stretches(total), Spent.SLOW_STEPS)
        middle_ns, high_ns = _usual([ns for at, ns in enumerate(total) if at not in odd])
        spikes = set(_spikes(total, odd, took.asynchronous))
        odd |= dict.fromkeys(spikes, Spent.SLOW_STEPS)
        if not took.asynchronous and len(total) < FEW_STEPS and len(odd) < len(total):
            middle_ns, high_ns = _usual(_without(total, odd))
    if not odd:
        return
    plain_own = _without(own, odd)
    known = [Pause(took.step[window.start + at], total[at]) for at in sorted(odd)]
    everyone = {*pauses, *judgement.pauses, *known}
    if took.asynchronous:  # where the program waits for the device, many steps are long
        middle_ns = _mean_of_long(_without(total, odd))
        usual_own = _mean_of_long(plain_own)
    else:
        usual_own = sum(plain_own) // len(plain_own) if plain_own else 0
    for at in sorted(odd):
        row = window.start + at
        if row not in rows:
            continue
        pause = Pause(took.step[row], total[at])
        longest = max((p.took_ns for p in (*pauses, *judgement.pauses)), default=0)
        spent = odd[at]
        if at in spikes and _recurs(pause, everyone):
            spent = Spent.PRODUCTIVE
        elif pause.took_ns > stall_ns(high_ns, longest):
            spent = Spent.STALL
        over_ns = max(0, pause.took_ns - middle_ns)
        if took.asynchronous and at in spikes:
            expected_ns = max(middle_ns, _expected_wait(total, at))
            over_ns = pause.took_ns - expected_ns
            if over_ns < LEAST_EXCESS_NS or pause.took_ns <= SLOW_FACTOR * expected_ns:
                continue  # the device needs this long to finish its queue
        own_ns = min(max(own[at] - usual_own, 0), over_ns)
        judgement.pauses.append(pause)
        judgement.excess[row] = Excess(own_ns, over_ns - own_ns, spent)


def _usual(total: Sequence[int]) -> tuple[int, int]:
    """The mean of the steps in line, and the longest of them without the longest twentieth."""
    ordered = sorted(total)
    count = len(ordered)
    high = ordered[max(0, min(count * 19 // 20, count - 2))]
    inside = bisect_right(ordered, SLOW_FACTOR * high)
    mean = sum(ordered[:inside]) // inside
    return mean, max(high, mean)


def _expected_wait(total: Sequence[int], at: int) -> int:
    """How long the program should have waited for the device: the steps handed over since the
    device was idle, at the pace of the others, less the time since."""
    short = DISPATCH_SHARE * sum(total) / len(total)
    first = at
    while first and not (total[first - 1] >= short > total[first]):
        first -= 1
    count, since = at + 1 - first, sum(total[first:at])
    others = [*total[:first], *total[at + 1 :]]
    if len(others) < FEW:
        return 0
    pace = sum(others) / len(others)
    long = sorted(ns for ns in others if ns >= short)
    if len(long) * 5 >= len(others):  # many steps wait for an earlier one
        pace = max(pace, long[len(long) // 2])
    return max(0, int(count * pace - since))


def _mean_of_long(values: Sequence[int]) -> int:
    """The mean of the values that come close to the longest."""
    least = max(values, default=0) // 2
    long = [ns for ns in values if ns >= least]
    return sum(long) // len(long) if long else 0


def _without(values: Sequence[int], odd: Collection[int]) -> Sequence[int]:
    return [ns for at, ns in enumerate(values) if at not in odd] if odd else values


def _spikes(total: Sequence[int], odd: Collection[int], asynchronous: bool) -> Iterator[int]:
    """Steps far above the others, but not a whole run of them, which is a pace.

    Where steps only hand work over, the steps that wait for the device are compared.
    """
    others = _without(total, odd)
    mean = sum(others) / len(others) if asynchronous else 0
    ordered = sorted(ns for ns in others if ns >= mean)
    least = _leap(ordered)
    if not asynchronous and len(ordered) < FEW_STEPS:  # one in twenty would be none or one
        second = _leap(ordered[:-1])
        if second is not None and second > stall_ns(ordered[len(ordered) // 2]):
            least = second
    if least is None:
        return
    at = 0
    while at < len(total):
        run = at
        while run < len(total) and total[run] > least:
            run += 1
        if run > at and (run - at < FEW or max(total[at:run]) > SLOW_FACTOR * min(total[at:run])):
            yield from range(at, run)
        at = max(run, at + 1)


def _leap(ordered: Sequence[int]) -> int | None:
    """Among the longest twentieth, the steps three times as long as the next shorter one: lengths
    that merely vary have no such leap.  The more they vary, the larger the leap must be."""
    count = len(ordered)
    first = max(0, min(count * 19 // 20, count - 2))
    if count < 2:
        return None
    varied = (ordered[first] / max(ordered[count // 2], 1)) ** 0.5
    for at in range(first, count - 1):
        before, after = ordered[at], ordered[at + 1]
        if after > SLOW_FACTOR * varied * before and after - before >= LEAST_EXCESS_NS:
            return after - 1
    return None


def _stretches(total: Sequence[int]) -> list[int]:
    """Steps of a stretch that was slower than the steps before and after it."""
    if len(total) < 2 * SETTLED + FEW or not _may_be_slow(total):
        return []
    half = SMOOTH // 2
    smooth = [
        sorted(total[max(0, at - half) : at + half + 1])[
            (min(len(total), at + half + 1) - max(0, at - half)) // 2
        ]
        for at in range(len(total))
    ]
    base = sorted(smooth)[len(smooth) // 2]
    least = max(SLOW_FACTOR * base, base + LEAST_EXCESS_NS)
    stretches: list[range] = []
    at = 0
    while at < len(smooth):
        run = at
        while run < len(smooth) and smooth[run] > least:
            run += 1
        if run > at:
            stretches.append(_trimmed(total, range(at, run), least))
        at = max(run, at + 1)
    slow = [
        run
        for run in stretches
        if FEW <= len(run) <= LONGEST_STRETCH
        and run.start >= SETTLED
        and len(total) - run.stop >= SETTLED
        and sum(total[at] <= least for at in run) <= len(run) // 8
    ]
    if len(stretches) > 2 or len(slow) != len(stretches):
        return []  # it comes and goes, or it stays: this run is like that
    return [at for run in slow for at in run]


def _may_be_slow(total: Sequence[int]) -> bool:
    """Whether several steps near each other are as long as in a slow stretch; else there is
    none."""
    shortest = min(total)
    least = max(SLOW_FACTOR * shortest, shortest + LEAST_EXCESS_NS)
    long = [at for at, ns in enumerate(total) if ns > least]
    return any(b - a < SMOOTH for a, b in zip(long, long[2:], strict=False))


def _trimmed(total: Sequence[int], run: range, least: int) -> range:
    """Smoothing blurs the edges, so the stretch is cut to its first and last slow step."""
    half = SMOOTH // 2
    low, high = max(0, run.start - half), min(len(total), run.stop + half)
    slow = [at for at in range(low, high) if total[at] > least]
    return range(slow[0], slow[-1] + 1) if slow else run


def _recurs(pause: Pause, pauses: Collection[Pause]) -> bool:
    """Whether the step recurs: two others of its size lie at the same distance."""
    alike = {
        other.step
        for other in pauses
        if pause.took_ns <= SAME_SIZE * other.took_ns and other.took_ns <= SAME_SIZE * pause.took_ns
    } - {pause.step}
    for other in alike:
        apart = other - pause.step
        if pause.step % abs(apart) not in (0, 1, abs(apart) - 1):
            continue  # people write `if step % 100 == 0` for work that they do now and then
        if {pause.step - apart, pause.step + 2 * apart} & alike:
            return True
    return False
