"""The accounts of runs: whoever asks for one comes here.

An account is a fold over a run's records (`fold.py`).  For the first question about a run the store
replays them, from where an earlier head saved the fold if one did.  From then on every stored batch
is passed on, so a later question costs only what is new.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from runwatch.errors import RunwatchError
from runwatch.exports.prometheus import RunGoodput
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.arrivals import Arrivals
from runwatch.head.state.accounts.devices import worked
from runwatch.head.state.accounts.fold import Fold, TooLong
from runwatch.head.state.accounts.slices import BLOCKED, WORKED, Slices
from runwatch.head.state.accounts.waiters import PATIENCE_SECONDS, Waiters
from runwatch.head.state.accounts.worker import Job, Priority, Worker
from runwatch.record import Batch, JournalId, RunId
from runwatch.store.asking import LOOK_SECONDS, look, question
from runwatch.store.folds import FoldFiles
from runwatch.views.goodput import figures
from runwatch.views.goodput.account import Goodput
from runwatch.views.runs import ProcessState, RunSummary, runs_of

KEPT_SECONDS: Final = 3600.0
MOST_FOLDS: Final = 50
BRIEF_SECONDS: Final = 0.5
BRIEF_RECORDS: Final = 30_000
"""What a scrape may cost: it never begins with a long run."""
FEW_RECORDS: Final = 100_000
"""Whoever asks about a run with no more folds them without the worker, in a tenth of a second."""
LEAST_UNSAVED: Final = 10_000
"""What is worth saving when the head ends; less is read again in no time."""
LAST_SECONDS: Final = 3.0
"""Saving at the end may take so long."""
logger = logging.getLogger("runwatch.head")


class Accounts:
    """The folds of the runs that were asked for.

    With `still` (`Ingest.still`) they are kept, and `stored` must be called with every batch.
    Without it nobody says what is stored, and every question is answered from the beginning.  With
    `files` they outlive this head, and those of long runs are drawn up before anybody asks.
    """

    def __init__(
        self,
        reading: Reading,
        still: threading.Lock | None = None,
        files: FoldFiles | None = None,
    ) -> None:
        self._reading = reading
        self._still = still
        self._files = files if still is not None else None
        self.on_account: Callable[[RunId, Goodput], None] = lambda run, goodput: None
        """Called with every account that the worker has drawn up."""
        self._lock = threading.Lock()
        self._folds: OrderedDict[RunId, Fold] = OrderedDict()
        """The one asked for last is the last."""
        self._long: set[RunId] = set()
        """Too long to begin with in a scrape."""
        self._arrivals = Arrivals()
        self._changed: set[JournalId] = set()
        """Journals whose runs are to be looked at."""
        self._waiters: dict[RunId, Waiters] = {}
        self._swept = False
        self.worker = Worker(reading.clock)

    @contextmanager
    def of(self, run: RunId, states: list[ProcessState] | None = None) -> Iterator[Goodput | None]:
        """The account as of now, to be asked inside the block only; None if nothing has begun.

        `states` of its processes, if they are known.  It is drawn up for all who wait for it, and
        given up when the last of them has gone.
        """
        fold = self._fold(run)
        with fold.shared.held() as together:
            with together.asked():
                goodput = fold.account(states)
                if goodput is not None:
                    goodput.worked = worked(self._reading, run, goodput)
            look()
            yield goodput
            due = fold.is_worth_saving
        if due:
            self._want(run, Priority.UNSAVED)

    @contextmanager
    def in_passing(self, run: RunId, states: list[ProcessState]) -> Iterator[Goodput | None]:
        """As `of`, for one run of many.  An account that is not at hand is not kept: others would
        have to make room for it."""
        if self.at_hand(run):
            with self.of(run, states) as goodput:
                yield goodput
        else:
            yield Fold(run, self._reading, self._still, self._files).account(states)

    def at_hand(self, run: RunId) -> bool:
        """Whether asking costs only what is new."""
        fold = self._folds.get(run)
        return fold is not None and fold.begun

    def progress(self, run: RunId) -> float:
        """How much is done, 0 to 1, of an account that is being drawn up."""
        fold = self._folds.get(run)
        return 0.0 if fold is None else fold.progress

    @property
    def keeps(self) -> bool:
        """Whether what was asked for once is at hand from then on."""
        return self._still is not None

    def short(self, run: RunId, records: int) -> Goodput | None:
        """The account of a run that has few records, read for this question alone; else None."""
        try:
            return Fold(run, self._reading, None).account(at_most=records)
        except TooLong:
            return None

    def want(self, run: RunId) -> None:
        """Have the account drawn up and saved when there is time for it; if it can be saved."""
        if self._files is not None:
            self._want(run, Priority.CHANGED)

    def wait(self, run: RunId) -> bool:
        """Wait a moment for an account that takes long; whether it can be asked for now.

        It is drawn up beside, for as long as somebody asks for it now and then.
        """
        if not self.keeps or self.at_hand(run):
            return True
        if run not in self._waiters and self._is_begun_at_once(run):
            return True
        clock = self._reading.clock
        self._waiters.setdefault(run, Waiters(clock)).add(question())
        job = self._want(run)
        until_ns = clock.mono_ns() + int(PATIENCE_SECONDS * 1e9)
        while not self.at_hand(run) and clock.mono_ns() < until_ns:
            if job.ended.wait(LOOK_SECONDS):
                return True  # at hand, or the caller learns why not
            look()
        return self.at_hand(run)

    def stored(self, batches: Sequence[Batch]) -> None:
        """To be called with `still` held, for the batches just stored."""
        with self._lock:
            folds = list(self._folds.values())
        # Not in this thread: whatever goes wrong with an account, records are taken in.
        for fold in folds:
            if fold.stored(batches):
                name, lighten = f"new records of run {fold.run}", partial(_lighten, fold)
                self.worker.want(name, lighten, lambda: Priority.HEAVY)
        if self._files is not None and (due := self._arrivals.stored(batches)):
            with self._lock:
                self._changed.update(due)
            self.worker.want(
                "runs with many new records", self._want_changed, lambda: Priority.CHANGED
            )

    def forget(self, run: RunId) -> None:
        """The run was deleted or restored: its account is no longer right."""
        with self._lock:
            self._drop(run)
            self._long.discard(run)
        if self._files is not None:
            self._files.delete(run)

    def close(self) -> None:
        """After the last batch.  What is not saved yet is saved now, for a few seconds at most."""
        self.worker.close()
        clock = self._reading.clock
        deadline_ns = clock.mono_ns() + int(LAST_SECONDS * 1e9)
        with self._lock:
            folds = list(self._folds.values())
        for fold in reversed(folds):
            if clock.mono_ns() < deadline_ns and fold.lock.acquire(blocking=False):
                try:
                    if fold.unsaved >= LEAST_UNSAVED:
                        self._save(fold)
                finally:
                    fold.lock.release()

    def _fold(self, run: RunId) -> Fold:
        if self._still is None:
            return Fold(run, self._reading, None)
        now_ns = self._reading.clock.mono_ns()
        with self._lock:
            fold = self._known(run)
            fold.asked, fold.asked_ns = True, now_ns
            self._folds.move_to_end(run)
            self._forget(now_ns - int(KEPT_SECONDS * 1e9))
        return fold

    def _known(self, run: RunId) -> Fold:
        fold = self._folds.get(run)
        if fold is None:
            fold = self._folds[run] = Fold(run, self._reading, self._still, self._files)
            fold.asked_ns = self._reading.clock.mono_ns()
        return fold

    def _forget(self, before_ns: int) -> None:
        while (
            len(self._folds) > MOST_FOLDS or next(iter(self._folds.values())).asked_ns < before_ns
        ):
            self._drop(next(iter(self._folds)))

    def _drop(self, run: RunId) -> None:
        fold = self._folds.pop(run, None)
        if fold is not None:
            fold.fed = False
        self._waiters.pop(run, None)

    # ── jobs of the worker ────────────────────────────────────────────────────────────────────

    def _is_begun_at_once(self, run: RunId) -> bool:
        """One with few records is drawn up here: it need not wait for its turn."""
        fold = self._fold(run)
        if not fold.lock.acquire(blocking=False):
            return False
        try:
            fold.account(at_most=FEW_RECORDS)
        except TooLong:
            pass
        finally:
            fold.lock.release()
        return fold.begun

    def _want(self, run: RunId, priority: Priority | None = None) -> Job:
        """Without a priority it is drawn up only for as long as somebody waits for it."""

        def current() -> Priority | None:
            return Priority.WAITED_FOR if self._is_waited_for(run) else priority

        return self.worker.want(f"account of run {run}", lambda: self._tend(run), current)

    def _is_waited_for(self, run: RunId) -> bool:
        fold, waiters = self._folds.get(run), self._waiters.get(run)
        if fold is None or fold.begun:
            return False
        return fold.shared.is_wanted or (waiters is not None and waiters.are_there)

    def _want_changed(self) -> Slices[None]:
        with self._lock:
            journals, self._changed = self._changed, set()
        rows = self._reading.store.processes()
        for run in dict.fromkeys(row.run for row in rows if row.journal in journals and row.run):
            self._want(run, Priority.CHANGED)
        yield WORKED

    def _tend(self, run: RunId) -> Slices[None]:
        """Draw up an account and save it.  It is kept in memory only if somebody asked for it."""
        with self._lock:
            fold = self._known(run)
        try:
            self._sweep()
            yield from _holding(fold, self._draw_up_and_save(fold))
        finally:
            with self._lock:
                if not fold.asked and self._folds.get(run) is fold:
                    self._drop(run)

    def _draw_up_and_save(self, fold: Fold) -> Slices[None]:
        goodput = yield from fold.in_slices()
        if fold.is_worth_saving:
            yield WORKED
            self._save(fold)
        if goodput is not None:
            self.on_account(fold.run, goodput)

    def _save(self, fold: Fold) -> None:
        try:
            fold.save()
        except (RunwatchError, OSError) as error:
            logger.warning("the account of run %s is not saved: %s", fold.run, error)

    def _sweep(self) -> None:
        if self._files is not None and not self._swept:
            self._swept = True
            self._files.keep_only({row.run for row in self._reading.store.processes()})

    # ── for a scrape ──────────────────────────────────────────────────────────────────────────

    def brief(self) -> list[RunGoodput]:
        """Of the runs that go on, wait for pods, or ended within the hour; only those that cost
        next to nothing."""
        if self._still is None:
            return []
        clock = self._reading.clock
        recent_ns = clock.wall_ns() - int(KEPT_SECONDS * 1e9)
        deadline_ns = clock.mono_ns() + int(BRIEF_SECONDS * 1e9)
        states: dict[RunId, list[ProcessState]] = {}
        for state in self._reading.processes():
            states.setdefault(state.run, []).append(state)
        everyone = runs_of((state for of_run in states.values() for state in of_run), {})
        briefs: list[RunGoodput] = []
        with self._lock:
            waiting = {run for run, fold in self._folds.items() if fold.live}
        recent = [s.run for s in everyone if _is_recent(s, recent_ns) or s.run in waiting]
        for run in recent:
            late = clock.mono_ns() > deadline_ns
            if len(briefs) < MOST_FOLDS and not (late and run not in self._folds):
                briefs += self._briefly(run, states[run])
        return briefs

    def _briefly(self, run: RunId, states: list[ProcessState]) -> list[RunGoodput]:
        if run in self._long and run not in self._folds:
            return []
        fold = self._fold(run)
        if not fold.lock.acquire(blocking=False):
            return []
        try:
            goodput = fold.account(states, BRIEF_RECORDS)
            self._long.discard(run)
            held = self._reading.holdings(run, states)
            return [] if goodput is None else [_in_brief(run, goodput, states, held)]
        except TooLong:
            self._long.add(run)
            if not fold.begun:
                with self._lock:
                    self._drop(run)
            return []
        finally:
            fold.lock.release()


def _holding(fold: Fold, work: Slices[object]) -> Slices[None]:
    """Work that needs the fold's lock, begun as soon as nobody else has it."""
    while not fold.lock.acquire(blocking=False):
        yield BLOCKED
    try:
        yield from work
    finally:
        fold.lock.release()


def _lighten(fold: Fold) -> Slices[None]:
    if fold.lock.acquire(blocking=False):  # whoever else has it folds them
        try:
            fold.lighten()
        finally:
            fold.lock.release()
    yield WORKED


def _is_recent(run: RunSummary, since_ns: int) -> bool:
    return run.state == "running" or (run.ended_ns or run.last_ns) >= since_ns


def _in_brief(
    run: RunId, goodput: Goodput, states: Iterable[ProcessState], held: Sequence[figures.Holding]
) -> RunGoodput:
    account = goodput.account()
    hours = figures.device_ns(goodput, held, goodput.start_ns, goodput.end_ns)
    return RunGoodput(
        run=run,
        goodput=account.goodput,
        spent_seconds={name: ns / 1e9 for name, ns in account.spent_ns.items()},
        disruptions=len(goodput.disruptions),
        ideal_step_seconds=None if goodput.ideal_step_ns is None else goodput.ideal_step_ns / 1e9,
        ettr=figures.ettr(account, figures.queued_ns(states, goodput.start_ns)),
        device_hours=figures.hours(hours),
    )
