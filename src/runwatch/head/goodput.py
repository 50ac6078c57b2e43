"""The accounts of runs, kept up as their records come in.

An account is a fold over a run's records.  The first question about a run has it told again by the
store; from then on every stored batch is passed on, so that a later question costs what is new.
Each attempt has a scribe of its own: should one no longer be right (a process turned up, or a
batch came that tells of time already booked), only that attempt is told again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final

from runwatch.exports.prometheus import RunGoodput
from runwatch.head.reading import Reading
from runwatch.record import Batch, JournalId, RunId
from runwatch.store.grid import LOWEST
from runwatch.store.store import Replay, Wanted
from runwatch.views.goodput.account import Goodput, Life
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import (
    DATA_WAIT,
    ELAPSED_EVENT,
    ENTRY_EVENT,
    ENTRY_PREFIX,
    Scribe,
    life_of,
)
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.runs import ProcessState, RunSummary, runs_of

KEPT_SECONDS: Final = 3600.0
MOST_FOLDS: Final = 50
MOST_WAITING: Final = 50_000
"""Records that wait for a question; then they are folded without one."""
SURELY_GONE_SECONDS: Final = 60.0
"""After its end a process's last records may still be on their way."""
_PATIENCE: Final = 4
"""So often an attempt is told again for one question: each time something came late meanwhile."""
BRIEF_SECONDS: Final = 0.5
BRIEF_RECORDS: Final = 30_000
"""What a scrape may cost: it never begins with a long run."""


def counts(metric: str) -> bool:
    """Whether the account needs the points of a metric."""
    return metric == DATA_WAIT or metric.startswith(ENTRY_PREFIX)


WANTED: Final = Wanted(metric=counts, kinds=("run_start", ELAPSED_EVENT, ENTRY_EVENT))


class TooLong(Exception):
    """More would have to be told again than the one who asks can wait for."""


class _Fold:
    """One run's ledger.  `lock` is held by whoever asks; batches come in beside."""

    def __init__(self, run: RunId, reading: Reading, still: threading.Lock | None) -> None:
        self.run = run
        self.lock = threading.Lock()
        self.asked_ns = 0
        self._reading = reading
        self._still = still
        self._ledger = Ledger()
        self._scribes: dict[int, Scribe] = {}
        self._lenient: set[int] = set()
        self._started_ns: dict[JournalId, int] = {}
        self._gone: set[JournalId] = set()
        self.begun = False
        # From here on: what the writer's thread sees, too.
        self._gate = threading.Lock()
        self._members: dict[JournalId, int] = {}
        """The attempt of every process that was announced."""
        self._torn: set[int] = set()
        """Attempts to be told again."""
        self._waiting: list[Batch] = []
        self._records = 0

    # ── in the writer's thread ────────────────────────────────────────────────────────────────

    def stored(self, batches: Iterable[Batch]) -> bool:
        """Keep what is ours; whether so much is kept that it should be folded."""
        with self._gate:
            for batch in batches:
                attempt = self._members.get(batch.origin.journal)
                if attempt is not None and attempt not in self._torn:
                    self._waiting.append(batch)
                    self._records += batch.records
            return self._records > MOST_WAITING

    # ── for whoever holds the lock ────────────────────────────────────────────────────────────

    def account(
        self, states: list[ProcessState] | None = None, at_most: int | None = None
    ) -> Goodput | None:
        """As of now; `states` if they are known.

        `TooLong` if more than `at_most` records had to be told again.
        """
        states = self._catch_up(states, at_most)
        now_ns = self._reading.clock.wall_ns()
        goodput = draw_up(self._ledger, self._lives(states), now_ns)
        self._wait_for_those_who_may_speak(states)
        return goodput

    def lighten(self) -> None:
        """Fold what waits."""
        with self._gate:
            waiting, self._waiting, self._records = self._waiting, [], 0
        self._take(waiting)

    def _catch_up(
        self, known: list[ProcessState] | None, at_most: int | None
    ) -> list[ProcessState]:
        for _ in range(_PATIENCE):
            states = self._reading.processes(self.run) if known is None else known
            known = None
            due, afresh = self._due(states)
            if due:
                replay = self._begin(due, states, afresh, at_most)
                self._tell_again(due, states, afresh, replay)
            self.lighten()
            self._let_go(states)
            if not self._torn:
                break
        return states

    def _due(self, states: Sequence[ProcessState]) -> tuple[set[int], bool]:
        """The attempts to be told again, and whether that is all there is."""
        known = self._members
        renumbered = any(known.get(s.journal, s.attempt) != s.attempt for s in states)
        if not self.begun or renumbered:
            return {state.attempt for state in states}, True
        return self._torn | {
            s.attempt for s in states if self._started_ns.get(s.journal) != s.started_ns
        }, False

    def _begin(
        self, due: set[int], states: Sequence[ProcessState], afresh: bool, at_most: int | None
    ) -> Replay:
        """Of all that is stored by now; what is stored from now on is kept for us."""
        mine = {state.journal: state.attempt for state in states if state.attempt in due}
        wanted = replace(WANTED, since=dict.fromkeys(mine, LOWEST))
        with self._still or nullcontext(), self._gate:
            replay = self._reading.store.replay(self.run, wanted)
            if at_most is not None and replay.records > at_most:
                with replay:
                    raise TooLong
            self._members = mine if afresh else self._members | mine
            self._torn = set() if afresh else self._torn - due
            self._waiting = [batch for batch in self._waiting if self._kept(batch, due)]
            self._records = sum(batch.records for batch in self._waiting)
        return replay

    def _kept(self, batch: Batch, due: set[int]) -> bool:
        return self._members.get(batch.origin.journal, 0) not in due | {0}

    def _tell_again(
        self, due: set[int], states: Sequence[ProcessState], afresh: bool, replay: Replay
    ) -> None:
        if afresh:
            self._ledger, self._scribes = Ledger(), {}
            self._started_ns, self._lenient, self._gone = {}, set(), set()
        self.begun = False  # should the store fail us half-way
        with replay:
            self._announce(due, states)
            for stretch in replay:
                self._take(stretch)
        # In order of time, and yet too late: some rank went its own way.  It has no say then.
        self._lenient |= self._torn & due
        self.begun = True

    def _announce(self, attempts: set[int], states: Iterable[ProcessState]) -> None:
        for key in [key for key in self._ledger.attempts if key[0] in attempts]:
            del self._ledger.attempts[key]
        for attempt in attempts:
            self._scribes[attempt] = Scribe(self.run, self._ledger)
        for state in states:
            if state.attempt in attempts:
                self._gone.discard(state.journal)
                self._started_ns[state.journal] = state.started_ns
                scribe = self._scribe(state.attempt)
                scribe.enter(state.journal, state.attempt, state.rank, state.started_ns)

    def _scribe(self, attempt: int) -> Scribe:
        self._ledger.lenient = attempt in self._lenient  # of the attempts that it makes
        return self._scribes[attempt]

    def _take(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            attempt = self._members.get(batch.origin.journal)
            if attempt is None or attempt in self._torn:
                continue
            try:
                if batch.origin.journal in self._gone:
                    raise Stale("it was taken for gone")
                self._scribe(attempt).batch(batch)
            except Stale:
                self._tear(attempt)
        self._ledger.settle()

    def _tear(self, attempt: int) -> None:
        with self._gate:
            self._torn.add(attempt)

    # ── who has gone ──────────────────────────────────────────────────────────────────────────

    def _let_go(self, states: Iterable[ProcessState]) -> None:
        """Nobody need wait for those who are surely gone; should one speak, all is told again."""
        before_ns = self._reading.clock.wall_ns() - int(SURELY_GONE_SECONDS * 1e9)
        gone = {s.journal for s in states if s.ended_ns is not None and s.ended_ns < before_ns}
        new = gone - self._gone
        if not new:
            return
        self._gone |= new
        for (attempt, _), found in list(self._ledger.attempts.items()):
            mine = [track for key, track in found.tracks.items() if _journal(key) in new]
            try:
                for track in mine:
                    track.flush()
            except Stale:
                self._tear(attempt)
            self._ledger.end(track.key for track in mine)
        self._ledger.settle()

    def _wait_for_those_who_may_speak(self, states: Iterable[ProcessState]) -> None:
        """Drawing up takes for gone who has ended; its last records may still be on their way."""
        for state in states:
            attempt = self._ledger.attempts.get((state.attempt, 0))
            track = None if attempt is None else attempt.tracks.get(state.journal)
            if track is not None:
                track.ended = state.journal in self._gone

    def _lives(self, states: Iterable[ProcessState]) -> list[Life]:
        found: list[Life] = []
        for state in states:
            scribe = self._scribes.get(state.attempt)
            found += [life_of(state)] if scribe is None else scribe.lives([state])
        return found


class Accounts:
    """The folds of the runs that were asked for.

    With `still` (`Ingest.still`) they are kept, and `stored` must be told of every batch; without,
    nobody says what is stored, and every question is answered from the beginning.
    """

    def __init__(self, reading: Reading, still: threading.Lock | None = None) -> None:
        self._reading = reading
        self._still = still
        self._lock = threading.Lock()
        self._folds: OrderedDict[RunId, _Fold] = OrderedDict()
        """The one asked for last is the last."""
        self._long: set[RunId] = set()
        """Too long to begin with in a scrape."""
        self._lightener: threading.Thread | None = None

    @contextmanager
    def of(self, run: RunId) -> Iterator[Goodput | None]:
        """The account as of now, to be asked inside the block only; None if nothing has begun."""
        fold = self._fold(run)
        with fold.lock:
            yield fold.account()

    def at_hand(self, run: RunId) -> bool:
        """Whether asking costs only what is new."""
        fold = self._folds.get(run)
        return fold is not None and fold.begun

    @property
    def keeps(self) -> bool:
        """Whether what was asked for once is at hand from then on."""
        return self._still is not None

    def short(self, run: RunId, records: int) -> Goodput | None:
        """The account of a run that has few records, read for this question alone; else None."""
        try:
            return _Fold(run, self._reading, None).account(at_most=records)
        except TooLong:
            return None

    def stored(self, batches: Sequence[Batch]) -> None:
        """To be called with `still` held, for the batches just stored."""
        with self._lock:
            folds = list(self._folds.values())
        heavy = [fold for fold in folds if fold.stored(batches)]
        if heavy and (self._lightener is None or not self._lightener.is_alive()):
            # Not in this thread: whatever goes wrong with an account, records are taken in.
            self._lightener = threading.Thread(
                target=_lighten, args=(heavy,), name="runwatch-goodput", daemon=True
            )
            self._lightener.start()

    def close(self) -> None:
        if self._lightener is not None:
            self._lightener.join()

    def _fold(self, run: RunId) -> _Fold:
        if self._still is None:
            return _Fold(run, self._reading, None)
        now_ns = self._reading.clock.mono_ns()
        with self._lock:
            fold = self._folds.get(run)
            if fold is None:
                fold = self._folds[run] = _Fold(run, self._reading, self._still)
            fold.asked_ns = now_ns
            self._folds.move_to_end(run)
            self._forget(now_ns - int(KEPT_SECONDS * 1e9))
        return fold

    def _forget(self, before_ns: int) -> None:
        while (
            len(self._folds) > MOST_FOLDS or next(iter(self._folds.values())).asked_ns < before_ns
        ):
            self._folds.popitem(last=False)

    # ── for a scrape ──────────────────────────────────────────────────────────────────────────

    def brief(self) -> list[RunGoodput]:
        """Of the runs that go on or ended within the hour; only those that cost next to nothing."""
        if self._still is None:
            return []
        clock = self._reading.clock
        recent_ns = clock.wall_ns() - int(KEPT_SECONDS * 1e9)
        deadline_ns = clock.mono_ns() + int(BRIEF_SECONDS * 1e9)
        states: dict[RunId, list[ProcessState]] = {}
        for state in self._reading.processes():
            states.setdefault(state.run, []).append(state)
        everyone = runs_of((state for found in states.values() for state in found), {})
        found: list[RunGoodput] = []
        for run in [summary.run for summary in everyone if _is_recent(summary, recent_ns)]:
            late = clock.mono_ns() > deadline_ns
            if len(found) < MOST_FOLDS and not (late and run not in self._folds):
                found += self._briefly(run, states[run])
        return found

    def _briefly(self, run: RunId, states: list[ProcessState]) -> list[RunGoodput]:
        if run in self._long and run not in self._folds:
            return []
        fold = self._fold(run)
        if not fold.lock.acquire(blocking=False):
            return []
        try:
            goodput = fold.account(states, BRIEF_RECORDS)
            self._long.discard(run)
            return [] if goodput is None else [_in_brief(run, goodput)]
        except TooLong:
            self._long.add(run)
            if not fold.begun:
                with self._lock:
                    self._folds.pop(run, None)
            return []
        finally:
            fold.lock.release()


def _journal(key: str) -> str:
    """Whose track it is; a program that starts over in place has several."""
    return key.partition("#")[0]


def _lighten(folds: Iterable[_Fold]) -> None:
    for fold in folds:
        if fold.lock.acquire(blocking=False):
            try:
                fold.lighten()
            finally:
                fold.lock.release()


def _is_recent(run: RunSummary, since_ns: int) -> bool:
    return run.state == "running" or (run.ended_ns or run.last_ns) >= since_ns


def _in_brief(run: RunId, goodput: Goodput) -> RunGoodput:
    account = goodput.account()
    return RunGoodput(
        run=run,
        goodput=account.goodput,
        spent_seconds={name: ns / 1e9 for name, ns in account.spent_ns.items()},
        disruptions=len(goodput.disruptions),
        ideal_step_seconds=None if goodput.ideal_step_ns is None else goodput.ideal_step_ns / 1e9,
    )
