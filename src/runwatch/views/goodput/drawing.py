"""Puts the attempts of a ledger on one time axis, with what is known of the processes' lives.

The rules, beside those of `track.py` and `books.py`:

* an attempt begins with its first process and lasts until the next attempt begins;
* an attempt that said that its work was done is complete: its work stands, and the time until the
  next attempt is excluded; an attempt that just ended well is not thereby complete;
* an attempt whose processes all go on when the next begins is another job of the same name: its
  work stands, and from then on the account follows the next;
* a rank's death stops the attempt if no step is done after it; the time from then until the next
  attempt begins is infrastructure recovery (while others live, an open step that began after the
  death may still be done, until it is a stall);
* a step that was cut short is wasted progress, unless the run went on with the step after it; if it
  was longer than a pause may be, the time beyond the usual is a stall; a first step that was never
  done is program startup;
* step numbers that begin anew in one process, with nothing restored, are the next epoch's;
* work that is done again is wasted progress in the place where it was first done, from the step
  that the run went back to; this is the one rule by which booked time changes its class;
* before an attempt's first step, time that nothing claims is training preparation; elsewhere it is
  unattributed, and so is all of a run that does no steps;
* between attempts and before an attempt's first step, what the run waits for its machines and its
  pods is theirs (`waiting.py`); a run that went down goes on while pods are there for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runwatch.views.goodput.account import (
    AttemptAccount,
    Disruption,
    Goodput,
    Life,
    Range,
    RankShare,
    Stretch,
    Turn,
    Wait,
    normalised,
    went_on,
)
from runwatch.views.goodput.books import REST, Quotas, fill
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.ledger import Attempt, AttemptKey, Awaited, Ledger
from runwatch.views.goodput.steps.cells import claimed_ns
from runwatch.views.goodput.steps.judging import QUEUED, Pace
from runwatch.views.goodput.steps.laps import Lap
from runwatch.views.goodput.steps.track import OpenState, Track
from runwatch.views.goodput.timeline import Timeline
from runwatch.views.goodput.waiting import NO_MACHINES, WHOLE_SECOND_NS, Coming, Machines
from runwatch.views.pace import LIMITS, nanoseconds


@dataclass(slots=True)
class _Scene:
    """All that is known of one attempt before it is drawn."""

    key: AttemptKey
    attempt: Attempt | None
    lives: Sequence[Life]
    start_ns: int
    next_ns: int | None
    """When the next attempt began."""
    now_ns: int
    goes_on_at: int | None
    """The first step that a later attempt does."""
    has_steps: bool
    """Whether any attempt of the run does steps."""
    machines: Machines = NO_MACHINES
    prior: Pace = Pace()
    """How long a step took in the attempts before."""

    @property
    def limit_ns(self) -> int:
        return self.now_ns if self.next_ns is None else min(self.next_ns, self.now_ns)

    @property
    def is_restarted(self) -> bool:
        return self.next_ns is not None and self.next_ns <= self.now_ns

    @property
    def is_complete(self) -> bool:
        """Whether the next attempt begins anew rather than going on behind this one.  Always so if
        no attempt does steps.

        While the next attempt has done no step, it is thought to go on.
        """
        first = None if self.attempt is None else self.attempt.first_step
        if self.goes_on_at is None or first is None:
            return first is None and self.goes_on_at is None
        perhaps = any(life.done is None for life in self.lives if life.ok)
        return self.said_done or (perhaps and self.goes_on_at <= first)

    @property
    def said_done(self) -> bool:
        return any(life.done is True for life in self.lives if life.ok)

    @property
    def is_stopped(self) -> bool:
        return self.is_restarted or any(
            not life.ok and life.end_ns is not None for life in self.lives
        )

    @property
    def wanted_ns(self) -> int:
        """Until when pods were there to go on with the run; 0: none were."""
        ends = [life.end_ns for life in self.lives if life.end_ns is not None]
        bad = [life.end_ns for life in self.lives if life.end_ns is not None and not life.ok]
        if not ends or (not bad and (self.said_done or not self.has_steps)):
            return 0
        return self.machines.wanted_until(min(bad, default=max(ends)), self.now_ns)

    @property
    def tracks(self) -> Sequence[Track]:
        return () if self.attempt is None else tuple(self.attempt.tracks.values())


@dataclass(slots=True)
class _Ending:
    """How an attempt ended."""

    stop_ns: int
    """When the attempt stopped working."""
    close_ns: int
    """The attempt owns the time until then: the next attempt's start, the run's end, or now."""
    broken: bool
    """Stopped, rather than finished or going on."""
    cause: str = ""
    inferred_ns: int = 0
    over: bool = True
    """Finished or stopped."""
    complete: bool = False
    """Finished, and the next attempt is a new job."""


@dataclass(slots=True)
class _Drawn:
    """One attempt on the run's time axis."""

    start_ns: int
    done_ns: int
    """The end of its last completed step."""
    ending: _Ending
    laps: list[Lap]
    pace: Pace
    steps: int
    asynchronous: bool = False
    synchronous: bool = False
    busy_ns: int | None = None
    """The device was busy with the last completed step until then; None: not known."""
    hang_ns: int = 0
    """How long the attempt had hung when it was stopped."""
    wasted_open_ns: int = 0
    inferred_ns: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    awaited: Mapping[int, Awaited] = field(default_factory=dict)

    @property
    def first_begin_ns(self) -> int | None:
        return self.laps[0].begins[0] if self.laps else None

    def lay(self, timeline: Timeline, until_ns: int) -> None:
        start = max(timeline.start_ns, self.start_ns)
        end = min(timeline.end_ns, until_ns)
        if start < end:
            self.stretches.append(Stretch(timeline, start, end))

    def cut_in(self, wait: Wait) -> None:
        """The attempt's part of the wait takes the place of what was there."""
        timeline = Timeline(wait.start_ns)
        timeline.append(wait.end_ns, wait.spent)
        laid: list[Stretch] = []
        for old in self.stretches:
            parts = (
                (old.timeline, old.start_ns, min(old.end_ns, wait.start_ns)),
                (timeline, max(old.start_ns, wait.start_ns), min(old.end_ns, wait.end_ns)),
                (old.timeline, max(old.start_ns, wait.end_ns), old.end_ns),
            )
            laid += [Stretch(*part) for part in parts if part[1] < part[2]]
        self.stretches = laid


def draw_up(
    ledger: Ledger, lives: Iterable[Life], now_ns: int, machines: Machines = NO_MACHINES
) -> Goodput | None:
    """The account as of `now_ns`; None if no attempt has begun by then."""
    scenes = _scenes(ledger, lives, now_ns)
    drawn: list[_Drawn] = []
    prior = Pace()
    later = _later_paces(scenes)
    for scene in scenes[-1:]:
        scene.machines = machines
    for scene, next_pace in zip(scenes, later, strict=True):
        scene.prior = prior if prior.usual_ns is not None else next_pace
        attempt = _draw(scene)
        prior = attempt.pace if attempt.pace.usual_ns is not None else prior
        drawn.append(attempt)
    if not drawn:
        return None
    waits = _wait(scenes, drawn, machines)
    goodput = _assemble(ledger, drawn, scenes[-1].lives)
    goodput.waits = waits
    goodput.live = goodput.live or scenes[-1].wanted_ns >= now_ns
    return goodput


def _later_paces(scenes: Sequence[_Scene]) -> list[Pace]:
    """For each attempt, the pace of the next attempt that has one.  The first attempts may have
    done too few steps to have a pace of their own."""
    paces: list[Pace] = []
    pace = Pace()
    known = next((at for at, s in enumerate(scenes) if s.attempt and s.attempt.has_pace), 0)
    for scene in reversed(scenes[: known + 1]):
        paces.append(pace)
        if scene.attempt is not None and pace.usual_ns is None:
            pace = scene.attempt.tail(Pace()).books.pace
    return [*reversed(paces), *(Pace() for _ in scenes[known + 1 :])]


def _scenes(ledger: Ledger, lives: Iterable[Life], now_ns: int) -> list[_Scene]:
    """The attempts that have begun, in order of time."""
    by_attempt: dict[AttemptKey, list[Life]] = {}
    for life in lives:
        by_attempt.setdefault(life.attempt, []).append(life)
    starts = {key: attempt.start_ns for key, attempt in ledger.attempts.items()}
    for key, members in by_attempt.items():
        starts[key] = min(life.start_ns for life in members)
    has_steps = any(a.first_step is not None for a in ledger.attempts.values())
    scenes: list[_Scene] = []
    next_ns = goes_on_at = None
    for start, key in sorted(((s, k) for k, s in starts.items() if s <= now_ns), reverse=True):
        attempt = ledger.attempts.get(key)
        members = by_attempt.get(key, [])
        scenes.append(_Scene(key, attempt, members, start, next_ns, now_ns, goes_on_at, has_steps))
        next_ns = start
        if attempt is not None and attempt.first_step is not None:
            goes_on_at = attempt.first_step
    return scenes[::-1]


# ── one attempt ────────────────────────────────────────────────────────────────────────────────


def _draw(scene: _Scene) -> _Drawn:
    start, limit = scene.start_ns, scene.limit_ns
    if scene.attempt is None:
        ending = _ending(scene, start, start, scene.prior)
        drawn = _Drawn(start, start, ending, [], scene.prior, 0)
    else:
        drawn = _draw_steps(scene, scene.attempt, start, limit)
    _draw_open(scene, drawn)
    timeline = Timeline(drawn.ending.stop_ns)
    after = Spent.EXCLUDED if drawn.ending.complete else Spent.INFRASTRUCTURE_RECOVERY
    timeline.append(drawn.ending.close_ns, after)
    drawn.lay(timeline, drawn.ending.close_ns)
    drawn.inferred_ns += drawn.ending.inferred_ns
    return drawn


def _draw_steps(scene: _Scene, attempt: Attempt, start: int, limit: int) -> _Drawn:
    tail = attempt.tail(scene.prior, only_begun=scene.is_stopped)
    pace = tail.books.pace if tail.books.pace.usual_ns is not None else scene.prior
    laps = attempt.books.laps + tail.books.laps
    done = min(max(tail.books.end_ns, start), limit)
    last_begin = laps[-1].begins[-1] if laps else start
    drawn = _Drawn(
        start,
        done,
        _ending(scene, done, last_begin, pace),
        laps,
        pace,
        attempt.books.steps + tail.books.steps,
        asynchronous=tail.books.asynchronous,
        synchronous=tail.books.synchronous,
        busy_ns=tail.books.busy_ns if tail.books.knows_busy else None,
        awaited=tail.awaited,
    )
    before = Timeline(start)
    before.append(attempt.start_ns, _idle(scene, drawn))
    for timeline in (before, attempt.books.timeline, tail.books.timeline):
        drawn.lay(timeline, done)
    drawn.inferred_ns = attempt.books.inferred_ns + tail.books.inferred_ns
    drawn.inferred_ns += sum(track.inferred_ns for track in scene.tracks)
    drawn.inferred_ns += attempt.skew.drifted_ns(attempt.tracks, drawn.steps)
    return drawn


def _idle(scene: _Scene, drawn: _Drawn) -> Spent:
    """The class of unclaimed time outside steps."""
    if drawn.laps or not scene.has_steps:
        return Spent.UNATTRIBUTED
    return Spent.TRAINING_PREPARATION


def _ending(scene: _Scene, done_ns: int, last_begin_ns: int, pace: Pace) -> _Ending:
    ends = [life.end_ns for life in scene.lives if life.end_ns is not None]
    over = bool(scene.lives) and len(ends) == len(scene.lives)
    restarted, limit = scene.is_restarted, scene.limit_ns
    if restarted and went_on(scene.lives, limit):
        return _Ending(limit, limit, False, complete=True)
    wanted = 0 if restarted or not over else scene.wanted_ns
    close = limit if restarted or not over else min(max(*ends, done_ns, wanted), limit)
    fatal = [
        (life.end_ns, life.rank, life)
        for life in scene.lives
        if not life.ok and life.end_ns is not None and life.end_ns >= last_begin_ns
    ]
    first = min(fatal, key=lambda item: item[:2], default=None)
    if first is not None and (over or restarted or not _goes_on(scene, first[0], pace)):
        end, _, life = first
        stop = min(max(end, done_ns), close)
        unsure = _unsure_ns(scene, stop) + (0 if life.exact else _unseen_ns(scene, stop, close))
        return _Ending(stop, close, True, _went_first(fatal).cause, unsure)
    if over:
        stop = min(max(*ends, done_ns), close)
        if not restarted and close > stop:
            return _Ending(stop, close, True, "ended, and its pods are there again")
        if not restarted:
            return _Ending(stop, close, False)
        if scene.is_complete:
            unsure = 0 if scene.said_done else close - scene.start_ns
            return _Ending(stop, close, False, inferred_ns=unsure, complete=True)
        return _Ending(stop, close, True, *_broken_off(scene, close))
    if restarted:
        heard = max((track.now_ns for track in scene.tracks), default=scene.start_ns)
        stop = min(max(heard, done_ns), close)
        unsure = _unsure_ns(scene, stop) + _unseen_ns(scene, stop, close)
        return _Ending(stop, close, True, "started again; its end was not seen", unsure)
    return _Ending(close, close, False, over=False)


def _broken_off(scene: _Scene, close_ns: int) -> tuple[str, int]:
    """The cause for an attempt that ended well but was not the last, and the most time that may be
    booked wrongly."""
    first = None if scene.attempt is None else scene.attempt.first_step
    if scene.goes_on_at is None or first is None or scene.goes_on_at > first:
        return "ended and was started again", 0
    # The attempt may have been complete and the next a new job; it did not say so.
    words = (
        f"ended without saying that it was done, and was started again at step {scene.goes_on_at}"
    )
    return words, close_ns - scene.start_ns


def _went_first(fatal: Iterable[tuple[int, int, Life]]) -> Life:
    """The process that took the others down, as far as can be told."""
    return min(fatal, key=lambda item: (item[2].lived_ns or item[0], item[1]))[2]


def _unseen_ns(scene: _Scene, stop_ns: int, close_ns: int) -> int:
    """The most time that may be booked wrongly because the end was not seen.  If the run then
    begins anew, it is also open whether the work was redone or complete."""
    return close_ns - (scene.start_ns if scene.is_complete else stop_ns)


def _unsure_ns(scene: _Scene, stop_ns: int) -> int:
    """How much earlier the attempt may have stopped: a rank whose end was not seen may have died
    right after its last sign of life."""
    seen = {life.key for life in scene.lives if life.end_ns is not None and life.exact}
    last = [track.now_ns for track in scene.tracks if track.key not in seen]
    return max(0, stop_ns - min(last, default=stop_ns))


def _goes_on(scene: _Scene, died_ns: int, pace: Pace) -> bool:
    """Whether a step that began after the death may still be done."""
    states = [track.opened(scene.now_ns) for track in scene.tracks]
    begins = [state.begin_ns for state in states if state.begin_ns is not None]
    began = max((begin for begin in begins if begin > died_ns), default=None)
    return began is not None and not pace.is_stall(scene.now_ns - began)


def _furthest_behind(scene: _Scene, before_first: bool) -> Track | None:
    """The rank that the others wait for: the one with the fewest steps done.  Of several, one that
    has not begun the next step (first a busy one, then the one heard of last), or the one that
    began it last."""
    done = {life.key for life in scene.lives if life.ok and life.end_ns is not None}
    tracks = [track for track in scene.tracks if track.key not in done] or scene.tracks
    stepping = [track for track in tracks if track.steps or track.step is not None]
    if before_first or not stepping:
        stepping = list(tracks)

    def behind(track: Track) -> tuple[int, int, bool, int, bool, int, int]:
        pending, begin = track.pending, track.begin_ns
        lap, step = pending[-1][:2] if pending else track.handed or (-1, 0)
        idle = not track.is_busy
        return lap, step, begin is not None, -(begin or 0), idle, -track.now_ns, track.rank

    return min(stepping, key=behind, default=None)


def _draw_open(scene: _Scene, drawn: _Drawn) -> None:
    """Draws the time from the last completed step to the attempt's stop, as its slowest rank
    recorded it."""
    stop, idle = drawn.ending.stop_ns, _idle(scene, drawn)
    track = _furthest_behind(scene, not drawn.laps)
    timeline = Timeline(drawn.done_ns)
    if track is None:
        timeline.append(stop, idle)
        drawn.lay(timeline, stop)
        return
    state = track.opened(stop)
    begin = stop if state.begin_ns is None else min(state.begin_ns, stop)
    if idle == Spent.TRAINING_PREPARATION:
        since = max(drawn.done_ns, drawn.start_ns)
        drawn.inferred_ns += max(0, begin - since - claimed_ns(state.gap, since, begin))
    fill(timeline, state.gap, begin, _gap_quotas(drawn, state, begin, idle))
    begin = max(begin, timeline.end_ns)
    own = max(0, stop - begin) - claimed_ns(state.inside, begin, stop)
    kept = not drawn.ending.broken
    step = track.step
    if step is not None and drawn.ending.broken and scene.goes_on_at is not None:
        kept = scene.goes_on_at > step
    if begin < stop:
        compiled = any(p[2] == Spent.PROGRAM_STARTUP for p in (*state.gap, *state.inside))
        fill(timeline, state.inside, stop, _open_quotas(scene, drawn, own, kept, compiled))
    if drawn.ending.over:
        drawn.inferred_ns += track.unended_ns(stop)
    drawn.lay(timeline, stop)
    if step is not None and kept and drawn.ending.broken and begin < stop:
        lap = Lap()
        lap.add(step, begin, stop)
        drawn.laps.append(lap)
        drawn.steps += 1


def _gap_quotas(drawn: _Drawn, state: OpenState, begin_ns: int, idle: Spent) -> Quotas:
    """The unclaimed time after the last completed step, with no step open."""
    since = max(drawn.done_ns, drawn.start_ns)
    rest = max(0, begin_ns - since - claimed_ns(state.gap, since, begin_ns))
    usual = drawn.pace.usual_ns
    if not drawn.laps or usual is None:
        return [(REST, idle)]
    quotas: list[tuple[int, int]] = []
    if drawn.asynchronous:  # the device works through its queue
        known = None if drawn.busy_ns is None else max(0, drawn.busy_ns - since)
        behind = min(QUEUED * usual if known is None else known, rest)
        drawn.inferred_ns += behind
        quotas += [(behind, Spent.PRODUCTIVE)] if behind else []
        rest -= behind
    if not drawn.synchronous or drawn.pace.is_stall(rest):
        drawn.inferred_ns += rest  # the device may have been at work
    if not drawn.pace.is_stall(rest):
        return [*quotas, (REST, idle)]
    if drawn.ending.over and not drawn.ending.broken:
        return [*quotas, (REST, idle)]  # after the last step: nothing says what the program did
    drawn.hang_ns = rest
    return [*quotas, (REST, Spent.STALL)]


def _open_quotas(scene: _Scene, drawn: _Drawn, own_ns: int, kept: bool, compiled: bool) -> Quotas:
    pace, spent = drawn.pace, Spent.PRODUCTIVE if kept else Spent.WASTED_PROGRESS
    usual = pace.usual_ns
    if not drawn.laps and not compiled:
        return _first_quotas(drawn, own_ns, spent)
    if usual is None or not pace.is_stall(own_ns):
        drawn.inferred_ns += own_ns if usual is None else 0
        drawn.wasted_open_ns = 0 if kept else own_ns
        return [(REST, spent)]
    drawn.hang_ns = own_ns - usual
    drawn.inferred_ns += own_ns
    drawn.wasted_open_ns = 0 if kept else usual
    return [(usual, spent), (REST, Spent.STALL)] if usual else [(REST, Spent.STALL)]


def _first_quotas(drawn: _Drawn, own_ns: int, spent: Spent) -> Quotas:
    """The first step was never done: it compiled, loaded and allocated, unless it hung."""
    usual = min(drawn.pace.usual_ns or 0, own_ns)
    drawn.inferred_ns += own_ns
    drawn.wasted_open_ns = usual if spent == Spent.WASTED_PROGRESS else 0
    before = Spent.PROGRAM_STARTUP
    if own_ns - usual > nanoseconds(LIMITS.start_seconds):
        before, drawn.hang_ns = Spent.STALL, own_ns - usual
    return [*([(own_ns - usual, before)] if own_ns > usual else []), (REST, spent)]


# ── waiting for machines ───────────────────────────────────────────────────────────────────────


def _wait(scenes: Sequence[_Scene], drawn: Sequence[_Drawn], machines: Machines) -> list[Wait]:
    """Gives the time in which machines or pods were waited for its class."""
    waits: list[Wait] = []
    for at, coming in enumerate(_all_coming(scenes, drawn)):
        found = machines.waits(coming)
        edges = {edge for wait in found for edge in (wait.start_ns, wait.end_ns)}
        sure = {coming.since_ns, coming.until_ns, coming.begun_ns}
        drawn[min(at, len(drawn) - 1)].inferred_ns += WHOLE_SECOND_NS * len(edges - sure)
        for wait in found:
            for attempt in drawn[max(0, at - 1) : at + 1]:
                attempt.cut_in(wait)
        waits += found
    return waits


def _all_coming(scenes: Sequence[_Scene], drawn: Sequence[_Drawn]) -> Iterator[Coming]:
    """Each attempt, and the next one if pods are there for it."""
    before: tuple[_Scene, _Drawn] | None = None
    for scene, attempt in zip(scenes, drawn, strict=True):
        number, start = scene.key[0], attempt.start_ns
        first = attempt.first_begin_ns
        until = attempt.ending.stop_ns if first is None else first
        if before is None:
            yield Coming(number, scene.lives, 0, start, until, None, start, first)
        elif before[0].key[0] == number:  # a program that started over in place
            yield Coming(number, (), start, start, start)
        else:
            down = before[1].ending.stop_ns
            since = down if before[1].ending.broken else start
            began = before[1].start_ns
            yield Coming(number, scene.lives, down, since, until, began, start, first)
        before = scene, attempt
    ending = drawn[-1].ending
    if ending.broken and ending.close_ns > ending.stop_ns:
        yield Coming(scenes[-1].key[0] + 1, (), ending.stop_ns, ending.stop_ns, ending.close_ns)


# ── the run ────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Kept:
    """The part of a lap whose work still stands."""

    lap: Lap
    steps: int
    end_ns: int


@dataclass(slots=True)
class _Redone:
    """Work that was done again later."""

    ranges: list[Range] = field(default_factory=list)
    steps: int = 0


def _redone(
    drawn: Sequence[_Drawn], turns: list[Turn]
) -> tuple[list[Range], list[_Redone], list[_Kept], list[Range]]:
    """All ranges that were done again; those that each attempt's end cost; the laps that stand; and
    ranges that may have been done again but probably were not."""
    stands: list[_Kept] = []
    kept: list[_Kept] = []
    everything: list[Range] = []
    doubtful: list[Range] = []
    cost = [_Redone() for _ in drawn]
    stopped: int | None = None  # the last attempt that did steps
    for at, attempt in enumerate(drawn):
        for number, lap in enumerate(attempt.laps):
            if number and _is_new_epoch(attempt.laps[number - 1], lap):
                doubtful += [(other.lap.begins[0], other.end_ns) for other in kept[-1:]]
                kept.append(_Kept(lap, len(lap), lap.end_ns))
                continue
            again = _go_back(kept, lap.first_step)
            everything += again.ranges
            turns += [Turn(*redone, lap.begins[0], lap.first_step) for redone in again.ranges]
            if not number and stopped is not None:  # later laps went back without a restart
                cost[stopped] = again
            kept.append(_Kept(lap, len(lap), lap.end_ns))
        if attempt.laps:
            stopped = at
        if attempt.ending.complete:
            stands, kept, stopped = stands + kept, [], None
    return everything, cost, stands + kept, doubtful


def _is_new_epoch(before: Lap, lap: Lap) -> bool:
    """The same process numbers its steps from the same number again and restored nothing: this is
    the next epoch, not work done again."""
    return lap.first_step == before.first_step and not lap.restored


def _go_back(kept: list[_Kept], step: int) -> _Redone:
    """Removes the kept work from `step` on."""
    again = _Redone()
    while kept and kept[-1].lap.index(step) < kept[-1].steps:
        last = kept[-1]
        at = last.lap.index(step)
        again.ranges.append((last.lap.begins[at], last.end_ns))
        again.steps += last.steps - at
        last.steps, last.end_ns = at, last.lap.begins[at]
        if at:
            break
        kept.pop()
    return again


def _assemble(ledger: Ledger, drawn: Sequence[_Drawn], last: Sequence[Life]) -> Goodput:
    turns: list[Turn] = []
    everything, cost, kept, doubtful = _redone(drawn, turns)
    stretches = [stretch for attempt in drawn for stretch in attempt.stretches]
    goodput = Goodput(
        names=ledger.names,
        start_ns=drawn[0].start_ns,
        end_ns=drawn[-1].ending.close_ns,
        live=not last or any(life.end_ns is None for life in last),
        inferred_ns=sum(attempt.inferred_ns for attempt in drawn),
        attempts=[_attempt(number, attempt) for number, attempt in enumerate(drawn, 1)],
        disruptions=(),
        ranks=_ranks(ledger, drawn),
        steps=sum(lap.steps for lap in kept),
        max_productive_step=max((k.lap.step_at(k.steps - 1) for k in kept), default=None),
        ideal_step_ns=next((a.pace.usual_ns for a in reversed(drawn) if a.pace.usual_ns), None),
        _stretches=stretches,
        _redone=normalised(everything),
        _starts=[stretch.start_ns for stretch in stretches],
    )
    goodput.inferred_ns += sum(goodput.productive_ns(a, b) for a, b in normalised(doubtful))
    goodput.disruptions = _disruptions(goodput, drawn, cost)
    goodput.turns = sorted(turns, key=lambda turn: turn.start_ns)
    goodput.laps = [lap for attempt in drawn for lap in attempt.laps]
    return goodput


def _attempt(number: int, drawn: _Drawn) -> AttemptAccount:
    return AttemptAccount(
        attempt=number,
        start_ns=drawn.start_ns,
        stop_ns=drawn.ending.stop_ns,
        steps=drawn.steps,
        first_step=drawn.laps[0].first_step if drawn.laps else None,
        last_step=drawn.laps[-1].last_step if drawn.laps else None,
        ideal_step_ns=drawn.pace.usual_ns if drawn.laps else None,
        stall_limit_ns=drawn.pace.limit_ns if drawn.laps and drawn.pace.usual_ns else None,
    )


def _ranks(ledger: Ledger, drawn: Sequence[_Drawn]) -> list[RankShare]:
    steps: dict[int, int] = {}
    own: dict[int, int] = {}
    for attempt in ledger.attempts.values():
        for track in attempt.tracks.values():
            steps[track.rank] = steps.get(track.rank, 0) + track.steps
            own[track.rank] = own.get(track.rank, 0) + track.own_ns
    waits: dict[int, Awaited] = {}
    for attempt_drawn in drawn:
        for rank, awaited in attempt_drawn.awaited.items():
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
    goodput: Goodput, drawn: Sequence[_Drawn], cost: Sequence[_Redone]
) -> list[Disruption]:
    disruptions = []
    for at, attempt in enumerate(drawn):
        if not attempt.ending.broken:
            continue
        stop = attempt.ending.stop_ns
        after = drawn[at + 1] if at + 1 < len(drawn) else None
        backs = [a.first_begin_ns for a in drawn[at + 1 : at + 2] if a.first_begin_ns is not None]
        lost_ns = sum(goodput.productive_ns(a, b) for a, b in cost[at].ranges)
        warm_up_ns = None if after is None else _warm_up_ns(goodput, after)
        disruptions.append(
            Disruption(
                attempt=at + 1,
                time_ns=stop,
                cause=attempt.ending.cause,
                hung=attempt.hang_ns > 0,
                lost_steps=cost[at].steps,
                wasted_ns=attempt.wasted_open_ns + lost_ns,
                recovery_ns=None if after is None else after.start_ns - stop,
                back_ns=backs[0] - stop if backs else None,
                hang_ns=attempt.hang_ns,
                warm_up_ns=warm_up_ns,
            )
        )
    return disruptions


def _warm_up_ns(goodput: Goodput, after: _Drawn) -> int | None:
    """From the attempt's start until its steps count; None while it has done none."""
    if not after.laps:
        return None
    begins = after.laps[0].begins
    end = begins[1] if len(begins) > 1 else after.laps[0].end_ns
    return end - after.start_ns - goodput.productive_ns(after.start_ns, end)
