"""The account of a run: every nanosecond from its first start to now or its end, in one class.

`draw_up` puts the attempts of a `Ledger` on one time axis together with what is known of the
processes' lives, and answers questions about any window of it.  The rules, beside those of
`track.py` and `books.py`:

* an attempt begins with its first process and lasts until the next begins;
* a rank that dies and after whose death no step begins stopped the attempt there; from then on
  until the next attempt begins is infrastructure recovery;
* a step that was cut short is wasted progress; what it took beyond the usual is a stall;
* work that is done again is wasted progress in the place where it was first done, from the step
  that the run went back to; this is the one rule by which booked time changes its class;
* before an attempt's first step, time that nothing claims is training preparation; elsewhere it is
  unattributed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runwatch.views.goodput.books import REST, Lap, Pace, Quotas, claimed_ns, fill
from runwatch.views.goodput.classes import FIRST_CUSTOM, ClassNames, Spent
from runwatch.views.goodput.ledger import Attempt, AttemptKey, Awaited, Ledger
from runwatch.views.goodput.timeline import Interval, Timeline
from runwatch.views.goodput.track import Track

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Life:
    """When a process of an attempt lived, and how it ended."""

    attempt: AttemptKey
    rank: int
    start_ns: int
    end_ns: int | None = None
    ok: bool = True
    """Whether it ended well, if it ended."""
    cause: str = ""
    """In words, if it did not."""
    exact: bool = True
    """False: when it ended is not known, and `end_ns` is when it was last heard of."""
    key: str = ""
    """Of its track."""


@dataclass(frozen=True, slots=True)
class Disruption:
    """An attempt that was stopped, and what that cost."""

    attempt: int
    time_ns: int
    cause: str
    hung: bool
    """It was stalled when it was stopped."""
    lost_steps: int
    """Completed steps that had to be done again."""
    wasted_ns: int
    recovery_ns: int | None
    """Until the next attempt began; None while there is none."""
    back_ns: int | None
    """Until the next attempt's first step began."""


@dataclass(frozen=True, slots=True)
class AttemptAccount:
    attempt: int
    start_ns: int
    stop_ns: int
    """When it ended or was stopped; now, if it goes on."""
    steps: int
    first_step: int | None
    last_step: int | None
    ideal_step_ns: int | None


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank's steps were like, and how long the others waited for it."""

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
    """By class name; every known class is there, custom ones if they occur."""

    @property
    def total_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def counted_ns(self) -> int:
        """What goodput is a share of: all but what was excluded."""
        return self.total_ns - self.spent_ns["excluded"]

    @property
    def goodput(self) -> float | None:
        """Productive share of the counted time, 0 to 1; None when there is none to share."""
        return self.spent_ns["productive"] / self.counted_ns if self.counted_ns else None


@dataclass(slots=True)
class _Stretch:
    timeline: Timeline
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Goodput:
    """The account of a whole run, to be asked; made by `draw_up`."""

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
    _stretches: Sequence[_Stretch]
    _wasted: Sequence[Range]
    _starts: Sequence[int] = field(default_factory=tuple)

    def account(
        self,
        since_ns: int | None = None,
        until_ns: int | None = None,
        *,
        exclude: Iterable[Range] = (),
    ) -> Account:
        """How the window was spent; it is clipped to the run."""
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
        """The intervals themselves: (start, end, class name), without gap or overlap."""
        start = self.start_ns if since_ns is None else max(since_ns, self.start_ns)
        end = self.end_ns if until_ns is None else min(until_ns, self.end_ns)
        found = _overlaid(self._plain(start, end), self._wasted, _waste)
        found = _overlaid(found, normalised(exclude), _exclude)
        for a, b, spent in _merged(found):
            yield a, b, self.names.name(spent)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _named(self, totals: Sequence[int]) -> dict[str, int]:
        return {
            self.names.name(spent): ns
            for spent, ns in enumerate(totals)
            if ns or spent < FIRST_CUSTOM
        }

    def _totals(self, start: int, end: int) -> list[int]:
        totals = self._raw_totals(start, end)
        for a, b in _within(self._wasted, start, end):
            wasted = self._raw_totals(a, b)[Spent.PRODUCTIVE]
            totals[Spent.PRODUCTIVE] -= wasted
            totals[Spent.WASTED_PROGRESS] += wasted
        return totals

    def _raw_totals(self, start: int, end: int) -> list[int]:
        totals = [0] * len(self.names)
        for stretch in self._stretches[self._first(start) :]:
            if stretch.start_ns >= end:
                break
            stretch.timeline.add_totals(
                max(start, stretch.start_ns), min(end, stretch.end_ns), totals
            )
        return totals

    def _plain(self, start: int, end: int) -> Iterator[Interval]:
        for stretch in self._stretches[self._first(start) :]:
            if stretch.start_ns >= end:
                break
            yield from stretch.timeline.intervals(
                max(start, stretch.start_ns), min(end, stretch.end_ns)
            )

    def _first(self, start: int) -> int:
        return max(0, bisect_right(self._starts, start) - 1)


def normalised(ranges: Iterable[Range]) -> list[Range]:
    """In order, without overlap; those that are empty or run backwards are left out."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _within(ranges: Sequence[Range], start: int, end: int) -> Iterator[Range]:
    first = max(0, bisect_right(ranges, (start, start)) - 1)
    for at in range(first, len(ranges)):
        a, b = ranges[at]
        if a >= end:
            return
        if b > start:
            yield max(a, start), min(b, end)


def _waste(spent: int) -> int:
    return Spent.WASTED_PROGRESS if spent == Spent.PRODUCTIVE else spent


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
    for found in intervals:
        if last is not None and last.spent == found.spent and last.end_ns == found.start_ns:
            last = Interval(last.start_ns, found.end_ns, found.spent)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last


# ── drawing it up ──────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Ending:
    """How an attempt came to its end."""

    stop_ns: int
    """When it stopped doing anything."""
    close_ns: int
    """Up to when its time is its own: the next attempt's start, the run's end, or now."""
    broken: bool
    """Stopped, rather than finished or going on."""
    cause: str = ""
    inferred_ns: int = 0


@dataclass(slots=True)
class _Drawn:
    """One attempt on the run's time axis."""

    start_ns: int
    ending: _Ending
    laps: list[Lap]
    pace: Pace
    steps: int
    first_begin_ns: int | None
    stalled: bool = False
    wasted_open_ns: int = 0
    inferred_ns: int = 0
    stretches: list[_Stretch] = field(default_factory=list)
    awaited: Mapping[int, Awaited] = field(default_factory=dict)


def draw_up(ledger: Ledger, lives: Iterable[Life], now_ns: int) -> Goodput | None:
    """The account as of `now_ns`; None if nothing has begun by then."""
    by_attempt: dict[AttemptKey, list[Life]] = {}
    for life in lives:
        by_attempt.setdefault(life.attempt, []).append(life)
    starts = _starts(ledger, by_attempt, now_ns)
    if not starts:
        return None
    has_steps = any(attempt.booked or _begun(attempt) for attempt in ledger.attempts.values())
    drawn: list[_Drawn] = []
    prior: int | None = None
    for at, (start, key) in enumerate(starts):
        next_ns = starts[at + 1][0] if at + 1 < len(starts) else None
        attempt = ledger.attempts.get(key)
        found = _draw(attempt, by_attempt.get(key, []), start, next_ns, now_ns, prior, has_steps)
        prior = found.pace.usual_ns or prior
        drawn.append(found)
    return _assemble(ledger, starts, drawn, by_attempt)


def _starts(
    ledger: Ledger, lives: Mapping[AttemptKey, Sequence[Life]], now_ns: int
) -> list[tuple[int, AttemptKey]]:
    """(start, key) of each attempt that has begun, in order of time."""
    found = {key: attempt.start_ns for key, attempt in ledger.attempts.items()}
    for key, members in lives.items():
        found[key] = min(life.start_ns for life in members)
    return sorted((start, key) for key, start in found.items() if start <= now_ns)


def _begun(attempt: Attempt) -> bool:
    return any(t.steps or t.step is not None for t in attempt.tracks.values())


def _draw(
    attempt: Attempt | None,
    lives: Sequence[Life],
    start_ns: int,
    next_ns: int | None,
    now_ns: int,
    prior_ns: int | None,
    has_steps: bool,
) -> _Drawn:
    limit = now_ns if next_ns is None else min(next_ns, now_ns)
    if attempt is None:
        ending = _ending(lives, start_ns, start_ns, start_ns, limit, next_ns)
        found = _Drawn(start_ns, ending, [], Pace(prior_ns), 0, None)
        _draw_open(found, None, start_ns, has_steps, prior_ns)
        _draw_recovery(found)
        return found
    tail = attempt.tail(prior_ns)
    laps = attempt.books.laps + tail.books.laps
    done_ns = min(max(tail.books.end_ns, start_ns), limit)
    last_begin = max((lap.begins[-1] for lap in laps[-1:]), default=start_ns)
    heard_ns = max((track.now_ns for track in attempt.tracks.values()), default=start_ns)
    found = _Drawn(
        start_ns,
        _ending(lives, done_ns, last_begin, heard_ns, limit, next_ns),
        laps,
        tail.books.pace,
        attempt.books.steps + tail.books.steps,
        laps[0].begins[0] if laps else None,
        inferred_ns=attempt.books.inferred_ns + tail.books.inferred_ns,
        awaited=tail.awaited,
    )
    _lay(found, _preparation(start_ns, attempt.start_ns, has_steps), done_ns)
    _lay(found, attempt.books.timeline, done_ns)
    _lay(found, tail.books.timeline, done_ns)
    _draw_open(found, _furthest_behind(attempt, lives), done_ns, has_steps, prior_ns)
    _draw_recovery(found)
    found.inferred_ns += sum(track.inferred_ns for track in attempt.tracks.values())
    return found


def _preparation(start_ns: int, end_ns: int, has_steps: bool) -> Timeline:
    timeline = Timeline(start_ns)
    timeline.append(end_ns, Spent.TRAINING_PREPARATION if has_steps else Spent.UNATTRIBUTED)
    return timeline


def _lay(found: _Drawn, timeline: Timeline, limit_ns: int) -> None:
    start = max(timeline.start_ns, found.start_ns)
    end = min(timeline.end_ns, limit_ns)
    if start < end:
        found.stretches.append(_Stretch(timeline, start, end))


def _ending(
    lives: Sequence[Life],
    done_ns: int,
    last_begin_ns: int,
    heard_ns: int,
    limit_ns: int,
    next_ns: int | None,
) -> _Ending:
    ends = [life.end_ns for life in lives if life.end_ns is not None]
    over = bool(lives) and len(ends) == len(lives)
    fatal = [
        life
        for life in lives
        if not life.ok and life.end_ns is not None and life.end_ns >= last_begin_ns
    ]
    restarted = next_ns is not None and next_ns <= limit_ns
    close = limit_ns if restarted or not over else min(max(max(ends), done_ns), limit_ns)
    if fatal:
        first = min(fatal, key=lambda life: (life.end_ns, life.rank))
        stop = min(max(first.end_ns or 0, done_ns), close)
        return _Ending(stop, close, True, first.cause, 0 if first.exact else close - stop)
    if over:
        stop = min(max(max(ends), done_ns), close)
        return _Ending(stop, close, restarted, "ended and was started again" if restarted else "")
    if restarted:
        stop = min(max(heard_ns, done_ns), close)
        return _Ending(stop, close, True, "started again; its end was not seen", close - stop)
    return _Ending(close, close, False)


def _furthest_behind(attempt: Attempt, lives: Sequence[Life]) -> Track | None:
    """The rank that the others wait for: of the last step that was completed, or not in one."""
    dead = {life.key for life in lives if life.key and life.ok and life.end_ns is not None}
    tracks = [t for t in attempt.tracks.values() if t.key not in dead]
    stepping = [t for t in tracks if t.steps or t.step is not None] or tracks

    def behind(track: Track) -> tuple[int, int, bool, int, int]:
        pending = track.pending
        lap, step = (pending.lap, pending.step) if pending else track.handed or (-1, 0)
        return lap, step, track.step is not None, -track.now_ns, track.rank

    return min(stepping or attempt.tracks.values(), key=behind, default=None)


def _draw_open(
    found: _Drawn, track: Track | None, done_ns: int, has_steps: bool, prior_ns: int | None
) -> None:
    """From the last completed step to where the attempt stopped, as the slowest rank tells it."""
    stop, timeline = found.ending.stop_ns, Timeline(done_ns)
    before_first = not found.laps
    idle = Spent.TRAINING_PREPARATION if before_first and has_steps else Spent.UNATTRIBUTED
    if track is None:
        timeline.append(stop, idle)
    else:
        state = track.opened(stop)
        begin = stop if state.begin_ns is None else min(state.begin_ns, stop)
        if before_first and has_steps:
            start = max(done_ns, found.start_ns)
            found.inferred_ns += max(0, begin - start - claimed_ns(state.gap, start, begin))
        fill(timeline, state.gap, begin, [(REST, idle)])
        since = max(begin, timeline.end_ns)
        own = max(0, stop - since) - claimed_ns(state.inside, since, stop)
        fill(timeline, state.inside, stop, _open_quotas(found, own, prior_ns))
    _lay(found, timeline, stop)


def _open_quotas(found: _Drawn, own_ns: int, prior_ns: int | None) -> Quotas:
    pace = Pace(found.pace.usual_ns or prior_ns)
    kept = Spent.WASTED_PROGRESS if found.ending.broken else Spent.PRODUCTIVE
    usual = pace.usual_ns
    if usual is None or not pace.is_stall(own_ns):
        found.wasted_open_ns = own_ns if found.ending.broken else 0
        return [(REST, kept)]
    found.stalled = True
    found.inferred_ns += usual
    found.wasted_open_ns = usual if found.ending.broken else 0
    return [(usual, kept), (REST, Spent.STALL)] if usual else [(REST, Spent.STALL)]


def _draw_recovery(found: _Drawn) -> None:
    timeline = Timeline(found.ending.stop_ns)
    timeline.append(found.ending.close_ns, Spent.INFRASTRUCTURE_RECOVERY)
    found.inferred_ns += found.ending.inferred_ns
    _lay(found, timeline, found.ending.close_ns)


# ── the run ────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Kept:
    """The part of a lap whose work still stands."""

    lap: Lap
    steps: int
    end_ns: int


@dataclass(slots=True)
class _Redone:
    ranges: list[Range] = field(default_factory=list)
    steps: int = 0


def _redone(drawn: Sequence[_Drawn]) -> tuple[list[_Redone], list[_Kept]]:
    """What each attempt did again of what was done before, and what stands in the end."""
    kept: list[_Kept] = []
    found = []
    for attempt in drawn:
        mine = _Redone()
        for lap in attempt.laps:
            while kept and kept[-1].lap.index(lap.first_step) < kept[-1].steps:
                last = kept[-1]
                at = last.lap.index(lap.first_step)
                mine.ranges.append((last.lap.begins[at], last.end_ns))
                mine.steps += last.steps - at
                last.steps, last.end_ns = at, last.lap.begins[at]
                if at:
                    break
                kept.pop()
            kept.append(_Kept(lap, len(lap), lap.end_ns))
        found.append(mine)
    return found, kept


def _assemble(
    ledger: Ledger,
    starts: Sequence[tuple[int, AttemptKey]],
    drawn: Sequence[_Drawn],
    lives: Mapping[AttemptKey, Sequence[Life]],
) -> Goodput:
    redone, kept = _redone(drawn)
    stretches = [stretch for attempt in drawn for stretch in attempt.stretches]
    end_ns = drawn[-1].ending.close_ns
    last = lives.get(starts[-1][1], ())
    goodput = Goodput(
        names=ledger.names,
        start_ns=starts[0][0],
        end_ns=end_ns,
        live=not last or any(life.end_ns is None for life in last),
        inferred_ns=sum(attempt.inferred_ns for attempt in drawn),
        attempts=[
            AttemptAccount(
                attempt=number,
                start_ns=attempt.start_ns,
                stop_ns=attempt.ending.stop_ns,
                steps=attempt.steps,
                first_step=attempt.laps[0].first_step if attempt.laps else None,
                last_step=attempt.laps[-1].last_step if attempt.laps else None,
                ideal_step_ns=attempt.pace.usual_ns if attempt.laps else None,
            )
            for number, attempt in enumerate(drawn, 1)
        ],
        disruptions=(),
        ranks=_ranks(ledger, drawn),
        steps=sum(lap.steps for lap in kept),
        max_productive_step=max((k.lap.step_at(k.steps - 1) for k in kept), default=None),
        ideal_step_ns=next((a.pace.usual_ns for a in reversed(drawn) if a.pace.usual_ns), None),
        _stretches=stretches,
        _wasted=normalised(r for mine in redone for r in mine.ranges),
        _starts=[stretch.start_ns for stretch in stretches],
    )
    goodput.disruptions = _disruptions(goodput, drawn, redone)
    return goodput


def _ranks(ledger: Ledger, drawn: Sequence[_Drawn]) -> list[RankShare]:
    steps: dict[int, int] = {}
    own: dict[int, int] = {}
    for attempt in ledger.attempts.values():
        for track in attempt.tracks.values():
            steps[track.rank] = steps.get(track.rank, 0) + track.steps
            own[track.rank] = own.get(track.rank, 0) + track.own_ns
    waits: dict[int, Awaited] = {}
    for found in drawn:
        for rank, awaited in found.awaited.items():
            mine = waits.setdefault(rank, Awaited())
            mine.steps += awaited.steps
            mine.nanoseconds += awaited.nanoseconds
    return [
        RankShare(
            rank=rank,
            steps=steps[rank],
            mean_step_ns=own[rank] // steps[rank] if steps[rank] else None,
            awaited_steps=waits[rank].steps if rank in waits else 0,
            awaited_ns=waits[rank].nanoseconds if rank in waits else 0,
        )
        for rank in sorted(steps)
    ]


def _disruptions(
    goodput: Goodput,
    drawn: Sequence[_Drawn],
    redone: Sequence[_Redone],
) -> list[Disruption]:
    found = []
    for at, attempt in enumerate(drawn):
        if not attempt.ending.broken:
            continue
        stop = attempt.ending.stop_ns
        after = drawn[at + 1] if at + 1 < len(drawn) else None
        again = redone[at + 1] if after is not None else _Redone()
        lost_ns = sum(goodput._raw_totals(a, b)[Spent.PRODUCTIVE] for a, b in again.ranges)
        back = None if after is None or after.first_begin_ns is None else after.first_begin_ns
        found.append(
            Disruption(
                attempt=at + 1,
                time_ns=stop,
                cause=attempt.ending.cause,
                hung=attempt.stalled,
                lost_steps=again.steps,
                wasted_ns=attempt.wasted_open_ns + lost_ns,
                recovery_ns=None if after is None else after.start_ns - stop,
                back_ns=None if back is None else back - stop,
            )
        )
    return found


def mean_time_between_failures_ns(goodput: Goodput) -> int | None:
    """Time during which the run was not recovering, per disruption."""
    if not goodput.disruptions:
        return None
    recovering = goodput.account().spent_ns["infrastructure_recovery"]
    return (goodput.end_ns - goodput.start_ns - recovering) // len(goodput.disruptions)


def mean_time_to_recovery_ns(goodput: Goodput) -> int | None:
    """From a disruption to the first step after it, on average over those that have one."""
    times = [d.back_ns for d in goodput.disruptions if d.back_ns is not None]
    return sum(times) // len(times) if times else None
