"""The steps of one attempt, booked in their order: which time was productive, and which not.

A step is booked once enough later steps are known to judge it by (`judging.py`).  Until then it is
held; a question judges held steps by what is known.  The first step's excess over the next ones is
program startup.  If a compile was recorded for the first step, only the compile is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, Final, NamedTuple

from runwatch.vectors import column, numpy, packed
from runwatch.views.goodput.arrivals import (
    Arrivals,
    Arrived,
    is_behind,
    long_on_device,
    longest_silence,
    usual_distance,
)
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.hand_over import hand_over_ns
from runwatch.views.goodput.queueing import Busy, busy_until, uncovered
from runwatch.views.goodput.steps.cells import Cell, Cells, Held, claimed_ns
from runwatch.views.goodput.steps.judging import (
    AROUND,
    DEVICE_SHARE,
    DISPATCH_SHARE,
    FEW,
    LEAST_EXCESS_NS,
    MOST_PAUSES,
    SLOW_FACTOR,
    Excess,
    Judgement,
    Pace,
    Pause,
    Took,
    by_prior,
    is_asynchronous,
    is_plain,
    judge,
    pace_of,
    waits_outside,
)
from runwatch.views.goodput.steps.laps import Lap
from runwatch.views.goodput.steps.strides import LEAST_STEPS
from runwatch.views.goodput.steps.track import Piece
from runwatch.views.goodput.timeline import Timeline

WARM_UP_STEPS: Final = 16
"""This many steps after the first say how long it should have taken."""
_RESTORING: Final = frozenset(
    (
        Spent.CHECKPOINT_RESTORE,
        Spent.ELASTIC_SLICE_DOWN,
        Spent.ELASTIC_SCALE_UP,
        Spent.ELASTIC_REINITIALIZATION,
    )
)
AT_ONCE: Final = 1024
"""This many steps are judged and booked together, once `AROUND` more are known."""


class _At(NamedTuple):
    """When the device was done with a step; the fields are those of `Busy`."""

    until: int
    at_least: int
    at_most: int


Quotas = Sequence[tuple[int, int]]
"""How unclaimed time is spent, in order: (nanoseconds, class).  The last has no limit."""


def fill(timeline: Timeline, pieces: Iterable[Piece], end_ns: int, quotas: Quotas) -> None:
    """Extends the timeline to `end_ns`.  Pieces keep their class; `quotas` share out the rest."""
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
        "arrivals", "asynchronous", "busy_ns", "capacity", "capacity_before", "inferred_ns",
        "knows_busy", "laps", "on_device", "on_gpu", "pace", "steps", "synchronous", "timeline",
        "_begun", "_degraded", "_hand_over_ns", "_held", "_lap", "_past", "_pauses",
    )  # fmt: skip

    def __init__(self, start_ns: int) -> None:
        self.timeline = Timeline(start_ns)
        self.arrivals = Arrivals()
        self.laps: list[Lap] = []
        self.pace = Pace()
        """As of the last `settle`."""
        self.capacity = 1
        """The most ranks that did a step so far."""
        self.capacity_before = 1
        """How many ranks did a step in the attempt that this one continues, as known by now."""
        self.synchronous = False
        """A step's work is known to be done when the step ends."""
        self.on_device = False
        """Work is known to be handed to a device."""
        self.on_gpu = False
        """The device is known to be a GPU."""
        self.asynchronous = False
        """Steps were seen that only hand work to a device."""
        self.steps = 0
        self.inferred_ns = 0
        """The most by which a class can be wrong, because booked time was guessed."""
        self._lap = -1
        self._begun = False
        self._held = Held()
        self._past = Took()
        self._pauses: list[Pause] = []
        self.busy_ns = 0
        """The device was busy with the last booked step until then."""
        self.knows_busy = False
        """Whether `busy_ns` is known from other steps that the program waited for."""
        self._degraded = False
        self._hand_over_ns = 0
        """How long the GPU idles at the begin of a step, if the program waited for it before."""

    @property
    def end_ns(self) -> int:
        return self.timeline.end_ns

    @property
    def most_ranks(self) -> int:
        return max(self.capacity, self.capacity_before)

    @property
    def first_step(self) -> int | None:
        if self.laps:
            return self.laps[0].first_step
        return self._held.steps[0] if self._held.steps else None

    @property
    def last_step(self) -> int | None:
        if self._held.steps:
            return self._held.steps[-1]
        return self.laps[-1].last_step if self.laps else None

    def add(self, cell: Cell) -> None:
        self._held.add(cell)
        if len(self._held) >= AT_ONCE + AROUND:
            self._book(AT_ONCE)

    def take(self, cells: Cell | Cells) -> tuple[int, int]:
        """Takes one step or many, and returns the lap and number of the last."""
        if isinstance(cells, Cell):
            self.add(cells)
            return cells.lap, cells.step
        begun = 0
        while begun < len(cells):  # in portions, booked as if they came one by one
            until = begun + AT_ONCE + AROUND - len(self._held)
            self._held.extend_with(cells.between(begun, until))
            begun = until
            if len(self._held) >= AT_ONCE + AROUND:
                self._book(AT_ONCE)
        return cells.lap, cells.last

    def extend(self, lap: int, step: int, times: array[int]) -> None:
        """Takes plain steps from `step` on.  Each lasts until the next time."""
        self._held.extend(lap, step, times)
        if len(self._held) >= AT_ONCE + AROUND:
            self._book(AT_ONCE)

    def settle(self, prior: Pace, *, only_begun: bool = False) -> None:
        """Books all held steps by what is known; `prior` is the pace of another attempt.

        `only_begun`: the attempt was stopped, so a lone first step shows only that it began.
        """
        self._book(len(self._held), prior, only_begun)

    def fork(self) -> Books:
        """A copy that continues where these books end, to be thrown away after a question."""
        copy = Books(self.end_ns)
        copy.asynchronous, copy.synchronous = self.asynchronous, self.synchronous
        copy.on_device, copy.on_gpu = self.on_device, self.on_gpu
        copy._lap = self._lap
        copy._begun = self._begun
        copy._held = self._held.copy()
        copy.arrivals = self.arrivals.copy()
        copy._past = self._past
        copy._pauses = self._pauses
        copy.busy_ns = self.busy_ns
        copy.capacity, copy._degraded = self.capacity, self._degraded
        copy.capacity_before = self.capacity_before
        return copy

    # ── booking ───────────────────────────────────────────────────────────────────────────────

    def _book(self, count: int, prior: Pace | None = None, only_begun: bool = False) -> None:
        if count:
            took = self._held.took(self.end_ns)
            whole = self._past.then(took)
            there = self._there()
            judged = self._judged(whole, len(self._past), count, prior or Pace())
            if there is not None:
                judged = self._by_arrivals(judged, len(self._past), there.values)
            self._pauses = [*self._pauses, *judged.pauses][-MOST_PAUSES:]
            first, start = len(self._past), int(not self._begun)
            busy = self._busy(took, judged, first, start, there) if self.asynchronous else None
            self._hand_over_ns = hand_over_ns(took, self.asynchronous) if self.on_gpu else 0
            if not self._begun:
                self._begun = True
                self._book_first(took, prior, only_begun, busy)
            odd = judged.excess or self._held.odd
            if not odd and self._is_plain(range(start, count)):
                self._book_run(range(start, count))
            else:
                self._book_each(range(start, count), took, judged, first, busy)
            if busy is not None:
                self.busy_ns = busy.until[count - 1]
                self.knows_busy = busy.is_known
            whole.asynchronous = self.asynchronous
            self._past = whole.between(start, first + count).last(2 * AROUND)
            self._held.drop(count)
            if self.arrivals and self._held.begins:
                self.arrivals.forget(self._held.begins[0])
        if prior is not None:
            self.pace = pace_of(self._past, self._pauses, prior)

    def _there(self) -> Arrived | None:
        """When values of the held steps arrived; None if no arrival is known."""
        if not self.arrivals or self.synchronous:
            return None
        held = self._held
        arrived = self.arrivals.of(held.steps, held.begins, held.ends, alone=max(held.ranks) == 1)
        self.asynchronous = self.asynchronous or is_behind(arrived.values, held.ends)
        return arrived if any(arrived.values) else None

    def _by_arrivals(self, judged: Judgement, first: int, there: Sequence[int]) -> Judgement:
        """Corrects the judgement by arrivals.  A pause in which values kept arriving is not out of
        line.  A step that took the device long is, wherever the program waited for it."""
        held, arrived = self._held, sorted(filter(None, there))
        silence = max(LEAST_EXCESS_NS, SLOW_FACTOR * usual_distance(arrived))
        for row in [row for row in judged.excess if row > first]:
            at = row - first
            if longest_silence(arrived, held.ends[at - 1], held.ends[at]) < silence:
                del judged.excess[row]
                judged.pauses = [p for p in judged.pauses if p.step != held.steps[at]]
        for late, over in long_on_device(held.steps, held.begins, there).items():
            at = bisect_left(held.ends, there[late] - over.own_ns // 2)
            if at and at < len(held) and first + at not in judged.excess:
                begin, end = held.begins[at], held.ends[at]
                own_ns = min(over.own_ns, end - begin)
                rest_ns = min(over.own_ns - own_ns, begin - held.ends[at - 1])
                judged.excess[first + at] = Excess(own_ns, rest_ns, over.spent)
        return judged

    def _judged(self, whole: Took, first: int, count: int, prior: Pace) -> Judgement:
        if not self._begun:  # the first step is no measure
            shifted = self._judged_from(whole.between(1, len(whole)), 0, count - 1, prior)
            excess = {at + 1: over for at, over in shifted.excess.items()}
            return Judgement(excess, shifted.pauses)
        return self._judged_from(whole, first, count, prior)

    def _judged_from(self, took: Took, first: int, count: int, prior: Pace) -> Judgement:
        if self.synchronous:
            self.asynchronous = False
        elif not self.asynchronous:
            share = DEVICE_SHARE if self.on_device else DISPATCH_SHARE
            self.asynchronous = is_asynchronous(took, share)
        took.asynchronous = self.asynchronous
        if len(took) <= FEW:
            return by_prior(took, prior)
        if not count or is_plain(took, first, first + count):
            return Judgement()
        return judge(took, first, self._pauses, first + count)

    def _is_plain(self, rows: range) -> bool:
        """Whether these steps follow one another without a gap.  The caller has checked that
        nothing else was done in them."""
        held, start, stop = self._held, rows.start, rows.stop
        if not rows or self._hand_over_ns or held.ranks[stop - 1] > 1 or self.most_ranks > 1:
            return False
        begins, ends = held.begins[start:stop], held.ends[start:stop]
        if begins[0] != self.end_ns or begins[1:] != ends[:-1] or held.waits[start:stop] != begins:
            return False
        lap, step = held.laps[start], held.steps[start]
        if held.laps[stop - 1] != lap or held.steps[stop - 1] - step != len(rows) - 1:
            return False
        return not (self.laps and self._is_new_lap(lap, step))

    def _book_run(self, rows: range) -> None:
        """Books plain steps as one stretch."""
        held, start, count = self._held, rows.start, rows.stop
        end = held.ends[count - 1]
        self.timeline.append(end, Spent.PRODUCTIVE)
        if not self.laps:
            self._turn(held.laps[start])
        lap = self.laps[-1]
        if len(lap) and lap.last_step + 1 == held.steps[start]:
            lap.extend(held.begins[start:count], end)
        else:
            lap.add(held.steps[start], held.begins[start], held.ends[start])
            lap.extend(held.begins[start + 1 : count], end)
        self.steps += count - start

    def _book_each(
        self, rows: range, took: Took, judged: Judgement, first: int, busy: Busy | None
    ) -> None:
        """Books odd steps one by one, and the steps between them together."""
        odd, begun = self._held.odd | {row - first for row in judged.excess}, rows.start
        for at in sorted(odd.intersection(rows)):
            self._book_some(range(begun, at), took, busy)
            self._book_one(at, took, judged.excess.get(first + at), busy)
            begun = at + 1
        self._book_some(range(begun, rows.stop), took, busy)

    def _book_first(
        self, took: Took, prior: Pace | None, only_begun: bool, busy: Busy | None
    ) -> None:
        held, before = self._held, self.end_ns
        gap: Sequence[Piece] = held.gap(0)
        inside: Sequence[Piece] = held.insides.get(0, [])
        begin, end = max(held.begins[0], before), held.ends[0]
        self.inferred_ns += begin - before - claimed_ns(gap, before, begin)
        fill(self.timeline, gap, begin, [(REST, Spent.TRAINING_PREPARATION)])
        next_ones = took.between(1, 1 + WARM_UP_STEPS)
        pace, own = pace_of(next_ones, self._pauses, prior or Pace()), took.own[0]
        usual = pace.usual_ns
        compiled = any(p[2] == Spent.PROGRAM_STARTUP for p in (*gap, *inside))
        extra, spent = max(0, own - (usual or 0)), Spent.PROGRAM_STARTUP
        if compiled and pace.is_stall(own):
            spent = Spent.STALL
        elif compiled or (usual is None and not only_begun):
            extra = 0
        if extra or (usual is None and not compiled):
            self.inferred_ns += own
        if compiled and busy is not None:
            inside = self._covered(0, took, busy)[1]
        quotas = [(extra, int(spent))] if extra else []
        fill(self.timeline, inside, end, [*quotas, (REST, Spent.PRODUCTIVE)])
        self._count(0, begin)

    def _busy(
        self, took: Took, judged: Judgement, first: int, start: int, there: Arrived | None
    ) -> Busy:
        """When the device was done with each held step.  Steps before `start` say nothing about
        others."""
        held = self._held
        handed = [max(begin, self.end_ns) for begin in held.begins]
        waits, ends = took.own, held.ends.tolist()
        for at, pieces in held.insides.items():
            handed[at] = _handed(pieces, handed[at])
            for piece in reversed(pieces):
                if piece[1] >= ends[at]:
                    ends[at] = piece[0]  # the last piece comes after the wait for the device
        if waits_outside(took.between(start, len(took))):
            after = [*took.rest[1:], 0]
            waits, ends = list(map(add, waits, after)), list(map(add, ends, after))
        odd = [row - first for row in judged.excess if row >= first]
        return busy_until(handed, ends, waits, odd, start, there)

    def _covered(self, at: int, took: Took, busy: Busy) -> tuple[list[Piece], list[Piece], int]:
        """The pieces before the step and in it, less the time in which the device was busy; and how
        much of the unclaimed time before the step the device was busy."""
        held = self._held
        before = _At(self.busy_ns, 0, self.busy_ns)
        if at:
            before = _At(busy.until[at - 1], busy.at_least[at - 1], busy.at_most[at - 1])
        now = _At(busy.until[at], busy.at_least[at], busy.at_most[at])
        queued = not busy.drained[at - 1] if at else self.busy_ns > self.end_ns
        gap, doubt = uncovered(held.gap(at), *before)
        inside: list[Piece] = []
        for piece in held.insides.get(at, ()):
            first = piece[1] <= busy.handed[at]
            then, beside = (before, queued) if first else (now, True)
            if beside and piece[2] == Spent.PROGRAM_STARTUP:
                then = then._replace(at_most=piece[1])  # compiling slows the device down
            pieces, hidden = uncovered([piece], *then)
            doubt += hidden
            inside += pieces
        self.inferred_ns += doubt
        working = max(0, before.until - self.end_ns)
        self.inferred_ns += min(working, took.rest[at], max(0, before.until - before.at_least))
        return gap, inside, min(working, took.rest[at])

    def _book_one(self, at: int, took: Took, over: Excess | None, busy: Busy | None) -> None:
        held, timeline, before = self._held, self.timeline, self.end_ns
        begin, end = max(held.begins[at], before), held.ends[at]
        gap: Sequence[Piece] = held.gap(at)
        inside: Sequence[Piece] = held.insides.get(at, ())
        working = 0
        if busy is not None:
            gap, inside, working = self._covered(at, took, busy)
        if begin > before:
            fill(timeline, gap, begin, _rest_quotas(over, took.rest[at], working, busy is not None))
        if over is not None:
            self.inferred_ns += over.own_ns + over.rest_ns
        own = took.own[at]
        excess = over.own_ns if over is not None and over.spent != Spent.PRODUCTIVE else 0
        missing = self._missing_share(at)
        idle = min(self._idle_ns(at, begin, busy), max(0, own - excess))
        self.inferred_ns += idle
        if excess or missing or idle:
            worked = own - excess - idle
            quotas = [(idle, Spent.UNATTRIBUTED)]
            quotas += [(worked - int(worked * missing), Spent.PRODUCTIVE)]
            quotas += [(worked - quotas[1][0], Spent.DEGRADED_CAPACITY)]
            quotas += [(excess, over.spent)] if over is not None and excess else []
            quotas = [quota for quota in quotas if quota[0]]
            fill(timeline, inside, end, [*quotas, (REST, Spent.PRODUCTIVE)])
        elif inside:
            fill(timeline, inside, end, [(REST, Spent.PRODUCTIVE)])
        else:
            timeline.append(end, Spent.PRODUCTIVE)
        self._count(at, begin)

    def _idle_ns(self, at: int, begin_ns: int, busy: Busy | None) -> int:
        """How long the GPU had nothing to do after a step had begun."""
        if busy is None:
            return self._hand_over_ns
        until_ns = busy.until[at - 1] if at else self.busy_ns
        if at and not busy.drained[at - 1]:
            return 0
        return max(0, self._hand_over_ns - max(0, until_ns - begin_ns))

    def _book_some(self, rows: range, took: Took, busy: Busy | None) -> None:
        """Books steps that are in line, with nothing but waits for data around them."""
        if busy is None and len(rows) > LEAST_STEPS and self._is_plain(rows):
            self._book_run(rows)
            return
        singly = len(rows)
        if busy is None and len(rows) > LEAST_STEPS and self._held.has_columns:
            singly = 0 if self._goes_on(rows[0]) else 1
        for at in rows[:singly]:
            self._book_one(at, took, None, busy)
        rest = rows[singly:]
        if rest and self._is_even(rest):
            self._book_columns(rest)
        else:
            for at in rest:
                self._book_one(at, took, None, busy)

    def _goes_on(self, at: int) -> bool:
        """Whether this step directly follows the last one booked."""
        held = self._held
        if not self.laps or held.laps[at] != self._lap:
            return False
        return held.steps[at] == self.laps[-1].last_step + 1

    def _is_even(self, rows: range) -> bool:
        """Whether all ranks did all of these steps, and their numbers are consecutive."""
        held, first, last = self._held, rows[0], rows[-1]
        ranks = set(held.ranks[first : last + 1])
        if len(ranks) > 1 or min(ranks) < self.most_ranks or held.laps[first] != held.laps[last]:
            return False
        return held.steps[last] - held.steps[first] == last - first

    def _book_columns(self, rows: range) -> None:
        """Does the same as `_book_one` for each step."""
        held, np = self._held, numpy()
        since, begins, ends = held.walked(self.end_ns, rows)
        waits = np.maximum(column(held.waits)[rows.start : rows.stop], since)
        edges = [np.minimum(waits, begins), begins, ends]
        around = [Spent.UNATTRIBUTED, Spent.DATA_LOADING, Spent.PRODUCTIVE]
        if self._hand_over_ns:
            handed = np.minimum(begins + self._hand_over_ns, ends)
            self.inferred_ns += int((handed - begins).sum())
            edges.insert(2, handed)
            around.insert(2, Spent.UNATTRIBUTED)
        bounds = np.stack(edges, axis=1)
        classes = np.empty(bounds.shape, np.uint8)
        classes[:] = around
        bounds, some = bounds.ravel(), np.empty(bounds.size, bool)
        some[0] = bounds[0] > self.end_ns
        np.greater(bounds[1:], bounds[:-1], out=some[1:])
        if some.any():
            self.timeline.extend(bounds[some], classes.ravel()[some])
        self.laps[-1].extend(packed(begins), self.end_ns)
        self.steps += len(rows)
        self.capacity, self._degraded = held.ranks[rows[0]], False

    def _missing_share(self, at: int) -> float:
        """The share of ranks that were there before and are missing now.  Ranks end one after the
        other, so nobody counts as missing for a step or two."""
        ranks = self._held.ranks
        self.capacity = max(self.capacity, ranks[at])
        most = self.most_ranks
        if ranks[at] >= most:
            self._degraded = False
            return 0.0
        few = ranks[at : at + FEW]
        self._degraded = self._degraded or (len(few) == FEW and max(few) < most)
        return 1 - ranks[at] / most if self._degraded else 0.0

    def _count(self, at: int, begin_ns: int) -> None:
        held = self._held
        self.steps += 1
        if not self.laps or self._is_new_lap(held.laps[at], held.steps[at]):
            restored = any(piece[2] in _RESTORING for piece in held.gaps.get(at, ()))
            self._turn(held.laps[at], restored)
        self.laps[-1].add(held.steps[at], begin_ns, self.timeline.end_ns)

    def _is_new_lap(self, lap: int, step: int) -> bool:
        return lap != self._lap or step <= self.laps[-1].last_step

    def _turn(self, lap: int, restored: bool = False) -> None:
        self.laps.append(Lap(restored))
        self._lap = lap

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        return {
            "timeline": self.timeline.state(),
            "laps": [lap.state() for lap in self.laps],
            "steps": self.steps,
            "inferred": self.inferred_ns,
            "lap": self._lap,
            "asynchronous": self.asynchronous,
            "synchronous": [self.synchronous, self.on_device, self.on_gpu],
            "begun": self._begun,
            "held": self._held.state(),
            "past": self._past.state(),
            "pauses": self._pauses,
            "ranks": [self.capacity, self.capacity_before, self._degraded],
            "busy": self.busy_ns,
            "arrivals": self.arrivals.state(),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Books:
        books = cls(0)
        books.timeline = Timeline.of_state(state["timeline"])
        books.laps = [Lap.of_state(lap) for lap in state["laps"]]
        books.steps, books.inferred_ns = state["steps"], state["inferred"]
        books._lap, books._begun = state["lap"], state["begun"]
        books.asynchronous = state["asynchronous"]
        books.synchronous, books.on_device, books.on_gpu = state["synchronous"]
        books._held = Held.of_state(state["held"])
        step, own, rest = (list(column) for column in state["past"])
        books._past = Took(step, own, rest)
        books._pauses = [Pause(*pause) for pause in state["pauses"]]
        books.capacity, books.capacity_before, books._degraded = state["ranks"]
        books.busy_ns = state["busy"]
        books.arrivals = Arrivals.of_state(state["arrivals"])
        return books


def _handed(pieces: Sequence[Piece], begin_ns: int) -> int:
    """When a step that began at `begin_ns` was handed over: after its data had come and its compile
    was over."""
    handed = begin_ns
    for at, (start, end, spent) in enumerate(pieces):
        compiled = spent == Spent.PROGRAM_STARTUP and not at
        if not compiled and (spent != Spent.DATA_LOADING or start > handed):
            break
        handed = end
    return handed


def _rest_quotas(over: Excess | None, rest_ns: int, working_ns: int, queued: bool) -> Quotas:
    """How the unclaimed time before a step is shared out; `queued`: the device's work in this time
    is known."""
    if over is None or not over.rest_ns or over.spent == Spent.PRODUCTIVE:
        quotas = [(working_ns, int(Spent.PRODUCTIVE)), (REST, int(Spent.UNATTRIBUTED))]
    else:
        usual = max(rest_ns - over.rest_ns, 0)
        working_ns = min(working_ns, rest_ns if queued else usual)
        quotas = [
            (working_ns, int(Spent.PRODUCTIVE)),
            (0 if queued else usual - working_ns, int(Spent.UNATTRIBUTED)),
            (REST, int(over.spent)),
        ]
    return [quota for quota in quotas if quota[0]]
