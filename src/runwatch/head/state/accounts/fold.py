"""One run's account as it is kept up: the store replays the run once, then new batches are added.

Each attempt has its own scribe.  If one is no longer right (a new process appeared, or a batch is
about time that is booked already), only that attempt is replayed again.  What took long to fold is
saved, and the next head continues from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Final

from runwatch.buckets import LOWEST
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.saved import FoldState, Mark, Unfit
from runwatch.head.state.accounts.slices import WORKED, Slices, finish
from runwatch.record import Batch, JournalId, RunId
from runwatch.store.asking import Shared, look
from runwatch.store.folds import FoldFiles
from runwatch.store.store import Replay, Tally, Wanted
from runwatch.views.goodput.account import Goodput, Life
from runwatch.views.goodput.arrivals import DEVICE_LAG
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import (
    DATA_WAIT,
    ENTRY_PREFIX,
    TOLD_KINDS,
    Scribe,
    life_of,
)
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.goodput.waiting import machines_of
from runwatch.views.pods import Pods
from runwatch.views.runs import ProcessState, ranks_of

NO_OFFSET_NS: Final = 20_000_000
"""An agent knows no better than this how far its clock is ahead."""
_TURNS: Final = 2
"""The clocks of an attempt's hosts are corrected by its own steps so many times at most."""
MOST_WAITING: Final = 50_000
"""Records that wait for a question.  With more they are folded without one."""
SURELY_GONE_SECONDS: Final = 60.0
"""After its end a process's last records may still be on their way."""
_PATIENCE: Final = 4
"""An attempt is replayed so many times for one question: each time because a record came late."""
WORTH_SAVING: Final = 30_000
"""Records; fewer are folded again in a tenth of a second."""
logger = logging.getLogger("runwatch.head")


def counts(metric: str) -> bool:
    """Whether the account needs the points of a metric."""
    return metric in (DATA_WAIT, DEVICE_LAG) or metric.startswith(ENTRY_PREFIX)


STRETCH_ROWS: Final = 400_000
"""With many ranks each has some hundred steps in a stretch.  Each stretch is one query over all of
the run, and takes about 100 MB."""
WANTED: Final = Wanted(metric=counts, kinds=TOLD_KINDS, rows=STRETCH_ROWS)


class TooLong(Exception):
    """More records would have to be replayed than the caller can wait for."""


class Fold:
    """One run's ledger.  Whoever asks holds `lock`; batches come in meanwhile.

    `fed` says that `stored` is called with every batch.  Once it is not, nothing is saved any more.
    """

    def __init__(
        self,
        run: RunId,
        reading: Reading,
        still: threading.Lock | None,
        files: FoldFiles | None = None,
    ) -> None:
        self.run = run
        self.shared = Shared()
        self.lock = self.shared.lock
        self.asked = False
        self.asked_ns = 0
        self.fed = still is not None
        self.live = False
        """When it was last asked for, the run went on, or its pods were waited for."""
        self.told = 0
        """How many records are folded."""
        self._saved = 0
        """How many were, when it was last saved."""
        self._telling = (0, 0)
        """How many records are replayed by now, and how many there are."""
        self._reading = reading
        self._still = still
        self._files = files
        self._ledger = Ledger()
        self._scribes: dict[int, Scribe] = {}
        self._lenient: set[int] = set()
        self._started_ns: dict[JournalId, int] = {}
        self._gone: set[JournalId] = set()
        self._ahead: dict[tuple[int, str], int] = {}
        """How far clocks are ahead, by attempt and host: as agents say, and steps show."""
        self._set: dict[int, int] = {}
        """How often the clocks of an attempt were set by its steps."""
        self.begun = False
        # From here on: what the writer's thread sees, too.
        self._gate = threading.Lock()
        self._members: dict[JournalId, int] = {}
        """The attempt of every process that was announced."""
        self._torn: set[int] = set()
        """Attempts to be replayed again."""
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

        Raises `TooLong` if more than `at_most` records would have to be replayed.
        """
        return finish(self.in_slices(states, at_most))

    def in_slices(
        self, states: list[ProcessState] | None = None, at_most: int | None = None
    ) -> Slices[Goodput | None]:
        """As `account`, a stretch of records at a time.  The lock is held from first to last."""
        everyone, pods = yield from self._catch_up(states, at_most)
        states, now_ns = ranks_of(everyone), self._reading.clock.wall_ns()
        machines = machines_of(everyone, pods)
        goodput = draw_up(self._ledger, self._lives(states), now_ns, machines)
        self.live = goodput is not None and goodput.live
        self._wait_for_those_who_may_speak(states)
        return goodput

    @property
    def progress(self) -> float:
        """How much of the replay is done, 0 to 1.  Anyone may ask, without the lock."""
        told, records = self._telling
        return min(told / records, 1.0) if records else 0.0

    def lighten(self) -> None:
        """Fold what waits."""
        with self._gate:
            waiting, self._waiting, self._records = self._waiting, [], 0
        self._take(waiting)

    def _catch_up(
        self, known: list[ProcessState] | None, at_most: int | None
    ) -> Slices[tuple[list[ProcessState], Pods]]:
        """The processes and pods as they were read last, launchers among them."""
        if not self.begun and at_most is None:
            yield from self._resume()
        for _ in range(_PATIENCE):
            everyone, pods = self._everyone(known)
            states, known = ranks_of(everyone), None
            due, afresh = self._due(states)
            if due:
                replay = self._begin(due, states, afresh, at_most)
                yield from self._tell_again(due, states, afresh, replay)
            self.lighten()
            self._let_go(states)
            self._set_clocks()
            if not self._torn:
                break
        return everyone, pods

    def _everyone(self, known: list[ProcessState] | None) -> tuple[list[ProcessState], Pods]:
        if known is None:
            return self._reading.processes_and_pods(self.run)
        return known, self._reading.pods(self.run, known)

    def _set_clocks(self) -> None:
        """Where steps show that hosts' clocks are apart, the attempt is replayed with the clocks
        corrected."""
        for attempt, hosts in self._ledger.ahead_ns().items():
            if attempt in self._torn or self._set.get(attempt, 0) >= _TURNS:
                continue
            self._set[attempt] = self._set.get(attempt, 0) + 1
            for host, ns in hosts.items():
                self._ahead[attempt, host] = self._ahead.get((attempt, host), 0) + ns
            self._tear(attempt)

    def _due(self, states: Sequence[ProcessState]) -> tuple[set[int], bool]:
        """The attempts to be replayed, and whether that is all there is."""
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
        """A replay of all that is stored by now.  Later batches come by `stored`."""
        mine = {state.journal: state.attempt for state in states if state.attempt in due}
        with self._still or nullcontext(), self._gate:
            replay = self._replay(dict.fromkeys(mine, LOWEST))
            if at_most is not None and replay.records > at_most:
                with replay:
                    raise TooLong
            self._members = mine if afresh else self._members | mine
            self._torn = set() if afresh else self._torn - due
            self._waiting = [batch for batch in self._waiting if self._kept(batch, due)]
            self._records = sum(batch.records for batch in self._waiting)
        return replay

    def _replay(self, since: Mapping[JournalId, int]) -> Replay:
        return self._reading.store.replay(self.run, replace(WANTED, since=since))

    def _kept(self, batch: Batch, due: set[int]) -> bool:
        return self._members.get(batch.origin.journal, 0) not in due | {0}

    def _tell_again(
        self, due: set[int], states: Sequence[ProcessState], afresh: bool, replay: Replay
    ) -> Slices[None]:
        if afresh:
            self._ledger, self._scribes = Ledger(), {}
            self._started_ns, self._lenient, self._gone = {}, set(), set()
            self._ahead, self._set = {}, {}
            self.told = self._saved = 0
        self.begun = False  # in case the store fails half-way
        with replay:
            self._announce(due, states)
            yield from self._listen(replay)
        # A replay is in order of time.  A record that is late even so is of a rank that went its
        # own way: from now on such ranks do not count.
        self._lenient |= self._torn & due
        self.begun = True

    def _listen(self, replay: Replay) -> Slices[None]:
        told = 0
        for stretch in replay:
            self._telling = told, replay.records
            self._take(_heeded(sorted(stretch, key=_first_ns)))
            told += sum(batch.records for batch in stretch)
            del stretch  # before the next is read
            if 0 < told < replay.records:
                yield WORKED

    def _announce(self, attempts: set[int], states: Sequence[ProcessState]) -> None:
        for key in [key for key in self._ledger.attempts if key[0] in attempts]:
            del self._ledger.attempts[key]
        for attempt in attempts:
            self._scribes[attempt] = Scribe(self.run, self._ledger)
        offsets = self._reading.clock_offsets()
        for state in states:
            if state.attempt in attempts:
                self._gone.discard(state.journal)
                self._started_ns[state.journal] = state.started_ns
                at = state.attempt, state.host
                offset_ns = offsets.get(state.host, 0)
                reported_ns = offset_ns if abs(offset_ns) > NO_OFFSET_NS else 0
                ahead_ns = self._ahead.setdefault(at, reported_ns)
                scribe = self._scribe(state.attempt)
                scribe.enter(
                    state.journal, state.attempt, state.rank, state.started_ns,
                    host=state.host, ahead_ns=ahead_ns + state.ahead_ns,
                )  # fmt: skip
        done = {s.attempt for s in states} - {s.attempt for s in states if s.done is not True}
        self._ledger.fresh = {attempt + 1 for attempt in done}

    def _scribe(self, attempt: int) -> Scribe:
        self._ledger.lenient = attempt in self._lenient  # of the attempts that it makes
        return self._scribes[attempt]

    def _take(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            attempt = self._members.get(batch.origin.journal)
            self.told += batch.records
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

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    @property
    def unsaved(self) -> int:
        return self.told - self._saved if self.begun and self._files is not None else 0

    @property
    def is_worth_saving(self) -> bool:
        """Whether to go on from what was saved would cost much more than to read it."""
        return self.unsaved >= max(WORTH_SAVING, self.told // 10)

    def save(self) -> None:
        """For the next head.  Raises OSError when the disk does."""
        if self._files is None or not self.begun or self.told < WORTH_SAVING:
            return
        store = self._reading.store
        with self._still or nullcontext(), self._gate:
            if not self.fed:
                return
            replay = self._replay(dict.fromkeys(self._members, LOWEST))
            at = {journal: store.cursor(journal) for journal in self._members}
            waiting, self._waiting, self._records = self._waiting, [], 0
        with replay:
            self._take(waiting)
            if self._torn:
                return
            tally = replay.tally()
        marks = {name: Mark(position, tally.get(name, Tally())) for name, position in at.items()}
        state = FoldState(
            self._ledger, self._scribes, self._lenient, self._started_ns, self._gone,
            self._members, marks, self.told, self._ahead,
        )  # fmt: skip
        self._files.write(self.run, state.to_bytes())
        self._saved = self.told

    def _resume(self) -> Slices[None]:
        """Continue from what was saved, if something was and the store still fits it."""
        if self._files is None or (saved := self._files.read(self.run)) is None:
            return
        try:
            rest = self._go_on(FoldState.of_bytes(self.run, saved))
        except (ValueError, Unfit) as error:
            logger.info("the account of run %s begins afresh: %s", self.run, error)
            self._files.delete(self.run)
            return
        with rest or nullcontext():
            if rest is not None:
                yield from self._listen(rest)
        self.begun = True

    def _go_on(self, saved: FoldState) -> Replay | None:
        """Take over what was saved.  Returns the replay of what the store has beyond it."""
        store = self._reading.store
        with ExitStack() as held:
            with self._still or nullcontext(), self._gate:
                whole = held.enter_context(self._replay(dict.fromkeys(saved.members, LOWEST)))
                ahead = saved.ahead(store.cursor)
                rest = held.enter_context(self._replay(ahead)) if ahead else None
                self._members, self._torn = saved.members, set()
                self._waiting, self._records = [], 0
            # With nothing new there is nothing to leave out, which is quicker.
            saved.check(whole.tally(saved.until if ahead else None))
            self._ledger, self._scribes = saved.ledger, saved.scribes
            self._started_ns, self._lenient, self._gone = (
                saved.started_ns, saved.lenient, saved.gone,
            )  # fmt: skip
            self._ahead, self._set = saved.clocks, dict.fromkeys(saved.scribes, _TURNS)
            self.told = self._saved = saved.told
            if rest is not None:
                held.pop_all()  # the caller closes `rest`
                whole.__exit__(None, None, None)
        return rest

    # ── who has gone ──────────────────────────────────────────────────────────────────────────

    def _let_go(self, states: Iterable[ProcessState]) -> None:
        """Do not wait for processes that are surely gone.  If one of them has a record after all,
        its attempt is replayed."""
        before_ns = self._reading.clock.wall_ns() - int(SURELY_GONE_SECONDS * 1e9)
        gone = {s.journal for s in states if s.ended_ns is not None and s.ended_ns < before_ns}
        new = gone - self._gone
        if not new:
            return
        self._gone |= new
        for (attempt, _), booked in list(self._ledger.attempts.items()):
            mine = [track for key, track in booked.tracks.items() if _journal(key) in new]
            try:
                for track in mine:
                    track.flush()
            except Stale:
                self._tear(attempt)
            self._ledger.end(track.key for track in mine)
        self._ledger.settle()

    def _wait_for_those_who_may_speak(self, states: Iterable[ProcessState]) -> None:
        """`draw_up` takes every process that has ended for gone.  Its last records may still be on
        their way, so it is taken back here."""
        for state in states:
            attempt = self._ledger.attempts.get((state.attempt, 0))
            track = None if attempt is None else attempt.tracks.get(state.journal)
            if track is not None:
                track.ended = state.journal in self._gone

    def _lives(self, states: Iterable[ProcessState]) -> list[Life]:
        lives: list[Life] = []
        for state in states:
            scribe = self._scribes.get(state.attempt)
            lives += [life_of(state)] if scribe is None else scribe.lives([state])
        return lives


def _heeded(stretch: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches, with a look before each whether anybody still waits."""
    for batch in stretch:
        look()
        yield batch


def _first_ns(batch: Batch) -> int:
    """When its first record was made.  Who did steps before another began is to be heard first."""
    columns = (batch.points.time_ns, batch.spans.time_ns)
    firsts = [int(times[0]) for times in columns if len(times)]
    return min([*firsts, *(event.time_ns for event in batch.events[:1])], default=LOWEST)


def _journal(key: str) -> str:
    """The journal that a track belongs to.  A program that restarts in place has several tracks."""
    return key.partition("#")[0]
