"""The hang watch: follows every run that goes on, and looks closer when one stands still.

The writer's thread only hands batches over.  A thread of the watch's own folds them into each
run's progress (`views/diagnosis/`) and asks for a verdict; on a stall another thread has the nodes
take stacks (`incidents.py`), so that a run that hangs keeps nobody else waiting.

Silence alone proves nothing: records may be on their way.  A verdict holds until the moment up
to which the run's hosts are known to have sent everything.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from runwatch.buckets import LOWEST
from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.head.features.stacks.incidents import (
    GAP_SECONDS,
    QUICK,
    THOROUGH,
    Incidents,
    Look,
    evidence_of,
)
from runwatch.head.reading import Reading
from runwatch.head.settings import HangSettings
from runwatch.record import Batch, JournalId, RunId, RunScope
from runwatch.record.commands import StacksWanted
from runwatch.record.life import Elapsed, RunEnd, RunStart
from runwatch.record.node import ProcessExit
from runwatch.record.otlp import is_foreign
from runwatch.record.stacks import Incident, Stacks
from runwatch.store.store import Wanted
from runwatch.views.diagnosis.evidence import RankEvidence
from runwatch.views.diagnosis.following import ENTRY_PREFIX, Follower
from runwatch.views.diagnosis.progress import Stall
from runwatch.views.runs import ProcessState, of_last_attempt
from runwatch.views.severity import Bearing, next_rise_ns, severity
from runwatch.views.times import to_the_second

TICK_SECONDS: Final = 0.5
FAILED_SECONDS: Final = 60.0
"""After a look that failed, a run is left alone for so long."""
LOOK_FACTOR: Final[Mapping[Bearing, float]] = {"unsure": 0.5, "busy": 3.0, "idle": 6.0}
"""A run that is not known to be stuck is looked at again after so many times the floor of the
limits, then half as often each time: it may still come to hang."""
MOST_CALM: Final = 5
UNSEEN_SECONDS: Final = 5.0
"""If nobody could look at some ranks, we try again: first after so long, then half as often."""
SWEEP_SECONDS: Final = 30.0
FRESH_SECONDS: Final = 5.0
"""A host that sent something within this time has sent all that it had before."""
RECENT_SECONDS: Final = 60.0
MOST_RECORDS: Final = 200_000
LIFE: Final = frozenset((RunStart.KIND, RunEnd.KIND))
logger = logging.getLogger("runwatch.head")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the watch asks of the head it belongs to."""

    alive: Callable[[], Collection[JournalId]]
    known_ns: Callable[[str], int | None]
    """By host: all that it recorded before this time has come here; None: that is not known."""
    ahead_ns: Callable[[], Mapping[str, int]]
    """How far each host's clock is ahead of ours."""


@dataclass(slots=True)
class _Watched:
    follower: Follower
    states: list[ProcessState] = field(default_factory=list)
    incident: Incident | None = None
    looking: bool = False
    tries: int = 0
    calm: int = 0
    """How often it was looked at and not found stuck."""
    quiet_until_ns: int = 0
    """Monotonic: not looked at again before."""

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(s.host for s in self.states if s.state == "running"))

    @property
    def world_size(self) -> int:
        return max((state.world_size for state in self.states), default=0)


class HangWatch:
    """`stored` is the writer's; everything else happens in threads of the watch's own."""

    def __init__(
        self,
        reading: Reading,
        incidents: Incidents,
        around: Surroundings,
        *,
        still: threading.Lock,
        settings: HangSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.settings = settings or HangSettings()
        self._reading = reading
        self._incidents = incidents
        self._around = around
        self._still = still
        self._clock = clock
        self._news: deque[Batch] = deque()
        self._exits: deque[JournalId] = deque()
        self._waiting: list[Batch] = []
        self._lags: dict[str, tuple[int, int]] = {}
        """By host: when something came last, and how old it was then."""
        self._hearts: dict[str, int] = {}
        """By host: when a process of it was last known to live."""
        self._lock = threading.Lock()
        """Progress is changed and looked at with it held."""
        self._runs: dict[JournalId, set[RunId]] = {}
        self._watched: dict[RunId, _Watched] = {}
        self._swept_ns = self._sampled_ns = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._looks: list[threading.Thread] = []

    def start(self) -> None:
        if self.settings.on and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="runwatch-hangs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for thread in self._looks:  # that one began them
            thread.join()

    def stored(self, batches: Sequence[Batch]) -> None:
        """To be called with `still` held, for the batches just stored."""
        if self._thread is None or not self._thread.is_alive():
            return
        for batch in batches:
            if batch.origin.role == "process":
                self._news.append(batch)
            elif batch.origin.role == "agent":
                for event in batch.events:
                    if event.kind == ProcessExit.KIND:
                        self._exits.append(JournalId(ProcessExit.of(event.body).journal))

    # ── in the watch's thread ─────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        act = self._take_up
        while not self._stop.is_set():
            try:
                act()
                act = self._tick
            except RunwatchError as error:  # a store that cannot be read now
                logger.warning("hang watch: %s", error)
            self._stop.wait(TICK_SECONDS)

    def _take_up(self) -> None:
        """The runs that were going on, and the incidents that were open, when this head began."""
        going = {run.run for run in self._reading.summaries() if run.state == "running"}
        for run in going:
            self._begin(run)
        for run, incident in self._incidents.all():
            if not incident.is_open:
                continue
            watched = self._watched.get(run)
            if watched is None:
                self._incidents.close(run, incident, "the run was over when the head looked again")
            else:
                watched.incident = incident

    def _tick(self) -> None:
        changed = {run for j in _drained(self._exits) for run in self._runs.get(j, ())}
        self._waiting += _drained(self._news)
        for run in self._new_runs(self._waiting):
            self._begin(run)
        changed |= self._feed()
        if self._clock.mono_ns() - self._swept_ns > SWEEP_SECONDS * 1e9:
            self._swept_ns = self._clock.mono_ns()
            changed |= set(self._watched)
        for run in changed & set(self._watched):
            self._refresh(run)
        self._hear_hearts()
        for run, watched in list(self._watched.items()):
            self._judge(run, watched)
        self._sample()
        self._looks = [thread for thread in self._looks if thread.is_alive()]

    def _sample(self) -> None:
        """A look at everyone, now and then, for a flame graph; nobody waits for it."""
        seconds, now_ns = self.settings.sample_seconds, self._clock.mono_ns()
        if seconds <= 0 or now_ns - self._sampled_ns < seconds * 1e9:
            return
        self._sampled_ns = now_ns
        for run, watched in self._watched.items():
            if watched.incident is None and not watched.looking:
                wanted = StacksWanted(gap_seconds=GAP_SECONDS, native=False)
                self._incidents.taker.ask(run, wanted, watched.hosts)

    def _feed(self) -> set[RunId]:
        """Fold what is new; the runs of which a process began or ended."""
        changed: set[RunId] = set()
        now_ns = self._clock.wall_ns()
        waiting, self._waiting = self._waiting, []
        ahead = self._around.ahead_ns() if waiting else {}
        with self._lock:
            for batch in waiting:
                runs = self._runs.get(batch.origin.journal, set())
                for run in runs:
                    self._watched[run].follower.batch(batch)
                if any(event.kind in LIFE for event in batch.events):
                    changed |= runs
                host = batch.origin.host
                self._lags[host] = now_ns, _newest_ns(batch, now_ns) - ahead.get(host, 0)
        return changed

    def _hear_hearts(self) -> None:
        now_ns, ahead = self._clock.wall_ns(), self._around.ahead_ns()
        hosts = {s.journal: s.host for w in self._watched.values() for s in w.states}
        with self._lock:
            for journal in self._around.alive():
                host = hosts.get(journal)
                if host is None:
                    continue
                self._hearts[host] = now_ns
                for run in self._runs.get(journal, ()):
                    self._watched[run].follower.heartbeat(journal, now_ns + ahead.get(host, 0))

    # ── which runs there are ──────────────────────────────────────────────────────────────────

    def _new_runs(self, batches: Iterable[Batch]) -> set[RunId]:
        """The runs of journals that are new to us, or were known to be of other runs only."""
        new: set[RunId] = set()
        unknown: set[JournalId] = set()
        for batch in batches:
            journal = batch.origin.journal
            runs = {d.run for d in batch.definitions if isinstance(d, RunScope)}
            new |= runs - self._runs.get(journal, set())
            if not runs and journal not in self._runs:
                unknown.add(journal)
        if unknown:
            rows = self._reading.store.processes()
            new |= {row.run for row in rows if row.journal in unknown and row.run}
            for journal in unknown:
                self._runs.setdefault(journal, set())  # of no run, as far as is known
        return new

    def _begin(self, run: RunId) -> None:
        """Follow a run, or those of its processes that have come since."""
        everyone = self._reading.processes(run)
        # What sends OTLP is heard of now and then: that it says nothing is no sign of anything.
        states = [s for s in of_last_attempt(everyone) if not is_foreign(s.journal)]
        watched = self._watched.get(run)
        before = watched.states if watched else []
        if watched is not None and before and states and before[0].attempt != states[0].attempt:
            attempt = before[0].attempt
            self._is_over(run, watched, [s for s in everyone if s.attempt == attempt])
        if not any(state.state == "running" for state in states):
            self._forget(run, states)
            return
        known = {state.journal for state in before}
        new = [state for state in states if state.journal not in known]
        if watched is None:
            watched = self._watched[run] = _Watched(Follower(run, self.settings.limits))
        if new:
            self._tell(run, watched, new)
        watched.states = states

    def _tell(self, run: RunId, watched: _Watched, new: Sequence[ProcessState]) -> None:
        """What the store has of these processes, and from then on what comes."""
        journals = {state.journal for state in new}
        seconds = RECENT_SECONDS
        while True:
            since = {s.journal: max(s.last_ns - int(seconds * 1e9), LOWEST) for s in new}
            follower = self._entered(run, watched, new)
            with self._still:
                replay = self._reading.store.replay(run, _wanted(since))
                # Of these processes only; of others it may be the first that is heard.
                self._waiting = [b for b in self._waiting if b.origin.journal not in journals]
                self._news = deque(b for b in self._news if b.origin.journal not in journals)
                for journal in journals:
                    self._runs.setdefault(journal, set()).add(run)
            with replay, self._lock:
                for stretch in replay:
                    for batch in stretch:
                        follower.batch(batch)
                enough = replay.records > MOST_RECORDS or _knows(follower)
            begun_ns = min(state.started_ns for state in new)
            if enough or watched.states or all(t <= begun_ns for t in since.values()):
                break
            seconds *= 8  # steps take long: further back
        watched.follower = follower

    def _entered(self, run: RunId, watched: _Watched, new: Sequence[ProcessState]) -> Follower:
        """A process that joins others adds to what is known; without others we learn anew."""
        follower = watched.follower if watched.states else Follower(run, self.settings.limits)
        self._enter(follower, new)
        return follower

    def _enter(self, follower: Follower, states: Iterable[ProcessState]) -> None:
        ahead = self._around.ahead_ns()
        with self._lock:
            for state in states:
                follower.enter(state, -ahead.get(state.host, 0))

    def _refresh(self, run: RunId) -> None:
        """How its processes stand now."""
        self._begin(run)
        watched = self._watched.get(run)
        if watched is None:
            return
        self._enter(watched.follower, watched.states)

    def _forget(self, run: RunId, states: Sequence[ProcessState]) -> None:
        watched = self._watched.pop(run, None)
        for journal, runs in list(self._runs.items()):
            runs.discard(run)
            if not runs:
                del self._runs[journal]
        if watched is not None:
            self._is_over(run, watched, states)

    def _is_over(self, run: RunId, watched: _Watched, states: Sequence[ProcessState]) -> None:
        """An attempt is over.  If ranks took each other down, that is an incident, too."""
        incident, watched.incident = watched.incident, None
        watched.quiet_until_ns = watched.tries = watched.calm = 0
        if incident is not None:
            self._incidents.close(run, incident, _how_it_ended(states))
        elif _went_down_together(states):
            self._enter(watched.follower, states)
            evidence = self._evidence(watched.follower, ())
            ends = [s.ended_ns for s in states if s.ended_ns is not None and s.state != "completed"]
            self._incidents.crashed(run, evidence, min(ends))

    # ── whether one stands still ──────────────────────────────────────────────────────────────

    def _judge(self, run: RunId, watched: _Watched) -> None:
        if watched.looking:
            return
        stall = self._verdict(watched)
        if stall is None:
            self._went_on(run, watched)
        elif self._clock.mono_ns() >= watched.quiet_until_ns:
            watched.looking = True
            thread = threading.Thread(
                target=self._look, args=(run, watched, stall), name="runwatch-incident", daemon=True
            )
            self._looks.append(thread)
            thread.start()

    def _verdict(self, watched: _Watched) -> Stall | None:
        now_ns = self._clock.wall_ns()
        until_ns = now_ns
        silence_ns = int(self.settings.limits.silence_seconds * 1e9)
        for host in watched.hosts:
            known = self._known_ns(host, now_ns)
            if known is not None:
                until_ns = min(until_ns, known)
            elif now_ns - self._hearts.get(host, now_ns) < silence_ns:
                return None  # it may have made progress that it cannot tell us of now
        with self._lock:
            return watched.follower.progress.verdict(until_ns)

    def _known_ns(self, host: str, now_ns: int) -> int | None:
        came_ns, newest_ns = self._lags.get(host, (0, 0))
        fresh_ns = int(FRESH_SECONDS * 1e9)
        if now_ns - came_ns < fresh_ns and came_ns - newest_ns > fresh_ns:
            return newest_ns  # a host that sends old records has more of them
        known = self._around.known_ns(host)
        return now_ns if known is not None and now_ns - known < fresh_ns else known

    def _went_on(self, run: RunId, watched: _Watched) -> None:
        if watched.incident is None:
            watched.quiet_until_ns = watched.calm = 0
            return
        with self._lock:
            progress = watched.follower.progress
            since_ns = max((progress.since_ns(rank) for rank in progress.ranks()), default=0)
        if since_ns > watched.incident.since_ns:
            why = f"it went on at {to_the_second(since_ns)}"
            self._incidents.close(run, watched.incident, why)
            watched.incident, watched.quiet_until_ns = None, 0
            watched.tries = watched.calm = 0

    # ── in a thread of its own ────────────────────────────────────────────────────────────────

    def _look(self, run: RunId, watched: _Watched, stall: Stall) -> None:
        try:
            self._investigate(run, watched, stall)
        except RunwatchError as error:
            logger.error("hang watch: cannot look closer at %s: %s", run, error)
            self._leave_alone(watched, FAILED_SECONDS)
        finally:
            watched.looking = False

    def _investigate(self, run: RunId, watched: _Watched, stall: Stall) -> None:
        detected_ns = self._clock.wall_ns()
        id = watched.incident.id if watched.incident else self._incidents.new_id()
        for wanted in (QUICK, THOROUGH):
            first = watched.incident.rounds if watched.incident else 0
            asked = replace(wanted, incident=id, first_round=first)
            look = self._look_at(run, watched, stall, asked)
            if self._stop.is_set() or self._watched.get(run) is not watched:
                return  # it is over
            now = self._verdict(watched)
            if now is None or (watched.incident is None and now.since_ns > stall.since_ns):
                return  # it went on while we looked; should it stand still again, we look again
            how_loud = severity(look.report.bearing, self._past_limit_ns(now), self.settings.limits)
            watched.incident = self._incidents.opened(
                run, id, now, look, detected_ns, watched.incident, how_loud
            )
        self._leave_alone(watched, self._again_seconds(watched, look, stall))

    def _past_limit_ns(self, stall: Stall) -> int:
        return max(self._clock.wall_ns() - stall.since_ns - stall.limit_ns, 0)

    def _again_seconds(self, watched: _Watched, look: Look, stall: Stall) -> float:
        """When to look again: soon while nothing is decided, and when it would become louder."""
        limits, bearing = self.settings.limits, look.report.bearing
        again = self.settings.look_again_seconds
        if bearing != "stuck":
            again = min(again, LOOK_FACTOR[bearing] * limits.floor_seconds * 2**watched.calm)
            watched.calm = min(watched.calm + 1, MOST_CALM)
        if not look.report.ranks and look.notes["looked_at"] < len(watched.states):
            watched.tries += 1
            again = min(again, UNSEEN_SECONDS * 2 ** (watched.tries - 1))
        rise_ns = next_rise_ns(bearing, self._past_limit_ns(stall), limits)
        return again if rise_ns is None else min(again, rise_ns / 1e9)

    def _look_at(self, run: RunId, watched: _Watched, stall: Stall, wanted: StacksWanted) -> Look:
        return self._incidents.look(
            run,
            wanted,
            watched.hosts,
            lambda stacks: self._evidence(watched.follower, stacks, stall),
            watched.world_size if stall.kind == "run" else 0,
            self._stop.is_set,
        )

    def _leave_alone(self, watched: _Watched, seconds: float) -> None:
        watched.quiet_until_ns = self._clock.mono_ns() + int(seconds * 1e9)

    def _evidence(
        self, follower: Follower, stacks: Iterable[Stacks], stall: Stall | None = None
    ) -> dict[int, RankEvidence]:
        with self._lock:
            everyone = evidence_of(stacks, follower.progress, self._clock.wall_ns())
        if stall is None or stall.kind == "run":
            return everyone
        # The others get on without these ranks: their stacks tell nothing of them.
        return {rank: each for rank, each in everyone.items() if rank in stall.ranks}


def _drained(waiting: deque[T]) -> Iterator[T]:
    while waiting:
        yield waiting.popleft()


def _wanted(since: Mapping[JournalId, int]) -> Wanted:
    return Wanted(
        metric=lambda metric: metric.startswith(ENTRY_PREFIX), kinds=(Elapsed.KIND,), since=since
    )


def _knows(follower: Follower) -> bool:
    """Whether we have seen enough steps to know how long they usually take."""
    progress = follower.progress
    steps = [progress.last_step(rank) for rank in progress.ranks()]
    return progress.usual_ns() is not None and None not in steps


def _newest_ns(batch: Batch, otherwise: int) -> int:
    times = [column[-1] for column in (batch.points.time_ns, batch.spans.time_ns) if column]
    times += [batch.events[-1].time_ns] if batch.events else []
    return max(times, default=otherwise)


def _went_down_together(states: Sequence[ProcessState]) -> bool:
    bad = [s for s in states if s.state in ("failed", "killed")]
    return len(states) > 1 and bool(bad)


def _how_it_ended(states: Sequence[ProcessState]) -> str:
    words = sorted({state.state for state in states})
    return f"the run ended: {', '.join(words)}" if words else "the run ended"
