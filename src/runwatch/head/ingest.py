"""One writer between everything that arrives and the store.

Batches wait in a bounded queue.  The writer takes what is there, up to a limit, and stores it in
one transaction: the more arrives, the larger (and cheaper per point) the transactions get.  Many
small batches would still make many transactions, so the writer begins one every 50 ms at most.
After a lull, or when much is waiting, it begins at once.
A batch's future is resolved after the store has the batch durably, never before.  While the disk is
full nothing is acknowledged, and the same batches are tried again until there is room.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import StoreDamaged, StoreFull
from runwatch.head.access.projects import Projects
from runwatch.head.quotas import Quotas, size_of
from runwatch.head.steady import SteadyClock
from runwatch.record import Batch, JournalId, Position, Verdict
from runwatch.store.store import Retention, Store

QUEUE_POINTS: Final = 2_000_000
TRANSACTION_POINTS: Final = 200_000
PACE_SECONDS: Final = 0.05
BURST: Final = 8
"""After a lull this many transactions may follow at once, so that one agent never waits."""
MUCH_POINTS: Final = 20_000
"""A transaction of this many points never waits for its turn."""
RETRY_SECONDS: Final = 1.0
HOUSEKEEPING_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
logger = logging.getLogger("runwatch.head")


class Ingest:
    def __init__(
        self,
        store: Store,
        *,
        retention: Retention | None = None,
        on_stored: Callable[[Sequence[Batch]], None] = lambda _: None,
        quotas: Quotas | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.store = store
        self.problem = ""
        """Why nothing is being stored at the moment; empty when all is well."""
        self.points_stored = self.batches_stored = self.batches_refused = 0
        self.neglected = ""
        """Why the store is not tidied at the moment; empty when all is well."""
        self.failure: BaseException | None = None
        """What ended the writer, if anything did: the head then goes down with it."""
        self.keeps_house = True
        """Whether the store is tidied now and then.  A command that wants one answer should not
        wait for that, nor need memory for it."""
        self.steady = SteadyClock(clock)
        """Whether the clock can be trusted.  Old data is deleted only then."""
        self.also: Callable[[], object] = lambda: None
        """What else is done when the store is tidied."""
        self.quotas = quotas
        self.projects = Projects(store) if quotas is None else quotas.projects
        self._retention = retention
        self._on_stored = on_stored
        self._clock = clock
        self._queue: deque[tuple[Batch, Future[Verdict]]] = deque()
        self._waiting = 0
        self._due_ns = -(2**62)
        """When the next transaction may begin, if they come evenly; see `_pause`."""
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._due = threading.Event()
        """Set when the store is to be tidied now, or when we stop."""
        self.still = threading.Lock()
        """While it is held, nothing is stored and no listener is called.  A listener that wants to
        read what is there and then miss nothing holds it for a moment."""
        self._writer = threading.Thread(target=self._write, name="runwatch-writer", daemon=True)
        self._keeper = threading.Thread(target=self._keep, name="runwatch-compact", daemon=True)
        self._writer.start()
        self._keeper.start()

    @property
    def has_room(self) -> bool:
        return self._waiting < QUEUE_POINTS

    @property
    def waiting_points(self) -> int:
        return self._waiting

    def submit(
        self, batch: Batch, client: str = "", bytes: int = 0, projects: Sequence[str] = ()
    ) -> Future[Verdict]:
        """Queue a batch.  The caller asks `has_room` (or `wait_for_room`) first.

        `client`: who sends it, for the limits; `bytes`: its length as a message; `projects`: the
        projects that it may add to, empty for all.
        """
        future: Future[Verdict] = Future()
        size = size_of(batch, bytes)
        if projects:
            batch, why = self.projects.admitted(batch, projects)
            if why:
                return self._refuse(batch, why)
        quotas = self.quotas if client else None
        if quotas is not None and (why := quotas.refusal(batch, client, size)):
            return self._refuse(batch, why)
        if batch.definitions and (coming := self.projects.coming(batch)):
            future.add_done_callback(lambda _: self.projects.settled(coming))
        if quotas is not None:
            future.add_done_callback(_counting(quotas, batch, client, size))
        with self._changed:
            if self.failure is not None or self._stopping.is_set():
                future.cancel()
                return future
            self._queue.append((batch, future))
            self._waiting += _weight(batch)
            # Waking the writer for every batch would cost what its pace saves.
            if len(self._queue) == 1 or self._waiting >= MUCH_POINTS:
                self._changed.notify_all()
        return future

    def _refuse(self, batch: Batch, why: str) -> Future[Verdict]:
        self.batches_refused += 1
        journal, refused = batch.origin.journal, Future[Verdict]()
        refused.set_result(Verdict(journal, self.store.cursor(journal), False, why))
        return refused

    def wait_for_room(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, timeout)

    def cursor(self, journal: JournalId) -> Position:
        return self.store.cursor(journal)

    def close(self) -> None:
        """Store what is queued, then stop."""
        self._stopping.set()
        self._due.set()
        with self._changed:
            self._changed.notify_all()
        self._writer.join()
        self._keeper.join()

    # ── the writer ────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        while (taken := self._take()) is not None:
            try:
                verdicts = self._store([batch for batch, _ in taken])
            except StoreFull as error:  # we are stopping: agents keep what was not acknowledged
                self._give_up(taken, error)
                return
            except BaseException as error:
                self._give_up(taken, error)
                raise
            for (batch, future), verdict in zip(taken, verdicts, strict=True):
                self._count(batch, verdict)
                future.set_result(verdict)
            with self._changed:
                self._waiting -= sum(_weight(batch) for batch, _ in taken)
                self._changed.notify_all()

    def _take(self) -> list[tuple[Batch, Future[Verdict]]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping.is_set())
            self._changed.wait_for(self._is_pressing, self._pause())
            taken, points = [], 0
            while self._queue and points < TRANSACTION_POINTS:
                batch, future = self._queue.popleft()
                if future.set_running_or_notify_cancel():
                    taken.append((batch, future))
                    points += len(batch.points)
                else:
                    self._waiting -= _weight(batch)
            return taken if taken or not self._stopping.is_set() else None

    def _is_pressing(self) -> bool:
        return self._waiting >= MUCH_POINTS or self._stopping.is_set()

    def _pause(self) -> float:
        """Seconds until the next transaction may begin."""
        now_ns, pace_ns = self._clock.mono_ns(), int(PACE_SECONDS * 1e9)
        due_ns = max(self._due_ns, now_ns - BURST * pace_ns) + pace_ns
        self._due_ns = min(due_ns, now_ns + pace_ns)  # a burst is not paid back later
        return (self._due_ns - now_ns) / 1e9

    def _store(self, batches: list[Batch]) -> list[Verdict]:
        while True:
            try:
                with self.still:
                    verdicts = self.store.write(batches)
                    stored = zip(batches, verdicts, strict=True)
                    self._on_stored([batch for batch, verdict in stored if verdict.accepted])
            except StoreFull as error:
                if not self.problem:
                    logger.error("%s; nothing is acknowledged until there is room", error)
                self.problem = str(error)
                if self._stopping.wait(RETRY_SECONDS):
                    raise
            else:
                if self.problem:
                    logger.warning("the store takes data again")
                self.problem = ""
                return verdicts

    def _count(self, batch: Batch, verdict: Verdict) -> None:
        if verdict.accepted:
            self.batches_stored += 1
            self.points_stored += len(batch.points)
        else:
            self.batches_refused += 1

    def _give_up(self, taken: list[tuple[Batch, Future[Verdict]]], error: BaseException) -> None:
        """The store failed in an unknown way.  Everyone who waits gets the error."""
        with self._changed:
            self.failure = error
            for _, future in (*taken, *self._queue):
                if not future.done():
                    future.set_exception(error)
            self._queue.clear()
            self._changed.notify_all()

    # ── housekeeping ──────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        """What fails is tried again, after growing pauses: a full or broken disk may come back.
        Until then `/api/v1/health` says what is not done."""
        pause = HOUSEKEEPING_SECONDS
        try:
            while not self._stopping.is_set():
                self._due.wait(pause)
                self._due.clear()
                if self.keeps_house and not self._stopping.is_set():
                    pause = self._keep_once(pause)
        except BaseException as error:
            self.neglected = f"the store is not tidied any more: {type(error).__name__}: {error}"
            raise

    def keep_soon(self) -> None:
        """Tidy the store now, before its time."""
        self._due.set()

    def _keep_once(self, pause: float) -> float:
        """Returns how long to wait for the next time."""
        try:
            self.also()
            self.store.compact()
            if self._retention is not None and self._may_delete():
                self.store.retain(self._retention, now_ns=self._clock.wall_ns())
        except (StoreFull, StoreDamaged, OSError) as error:
            longer = min(pause * 2, LONGEST_PAUSE_SECONDS)
            if not self.neglected:
                logger.error("the store is not tidied: %s", error)
            self.neglected = f"the store is not tidied: {error}"
            return longer
        if self.neglected:
            logger.warning("the store is tidied again")
        self.neglected = ""
        return HOUSEKEEPING_SECONDS

    def _may_delete(self) -> bool:
        before = self.steady.why
        steady = self.steady.is_steady(self.store.health().newest_block_ns)
        if self.steady.why != before:
            logger.warning("%s", self.steady.why or "old data is deleted again")
        return steady


def _counting(
    quotas: Quotas, batch: Batch, client: str, size: int
) -> Callable[[Future[Verdict]], None]:
    new = quotas.about(batch) if batch.definitions else (0, 0)

    def count(future: Future[Verdict]) -> None:
        if not future.cancelled() and future.exception() is None and future.result().accepted:
            quotas.took(batch, client, size, new)

    return count


def _weight(batch: Batch) -> int:
    return len(batch.points) + 2 * len(batch.spans) + 20 * len(batch.events) + 10
