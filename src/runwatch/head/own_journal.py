"""The head's own records: what it decided or was told to do, stored like everything else."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TooLate
from typing import Final

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.errors import StoreBusy, StoreFull
from runwatch.head.ingest import Ingest
from runwatch.journal.liveness import boot_id, start_ticks, this_host
from runwatch.journal.segment import new_journal_id
from runwatch.record import Batch, Definition, Event, JournalId, Origin, Position, RunId, RunScope
from runwatch.record.message import Message
from runwatch.rows import EventRow

PATIENCE_SECONDS: Final = 20.0


class OwnJournal:
    """Any thread may write; a call returns when the store has it durably, or raises.

    Its ranks are -1: a head takes no part in a run that it writes about.
    """

    def __init__(self, ingest: Ingest | None, *, clock: Clock = system_clock) -> None:
        """Without an ingest the store can only be read."""
        self._ingest = ingest
        self._clock = clock
        self._lock = threading.Lock()
        self._origin: Origin | None = None
        self._place = 0
        self._scopes: dict[RunId, int] = {}

    @property
    def journal(self) -> JournalId | None:
        """None until something was recorded."""
        return None if self._origin is None else self._origin.journal

    def record(self, messages: Sequence[Message], run: RunId | None = None) -> list[EventRow]:
        """The rows that the store has now."""
        with self._lock:
            return self._record(messages, run)

    def _record(self, messages: Sequence[Message], run: RunId | None) -> list[EventRow]:
        if self._ingest is None:
            raise StoreBusy("this store can only be read here; ask the head that serves it")
        now_ns = self._clock.wall_ns()
        origin = self._origin = self._origin or own_origin(now_ns)
        scope, definitions = self._scope(run)
        events = [Event(now_ns, each.KIND, each.body(), scope=scope) for each in messages]
        start, end = Position(self._place), Position(self._place + len(events))
        written = self._ingest.submit(
            Batch(origin, start, end, definitions=definitions, events=events)
        )
        try:
            self._place = written.result(PATIENCE_SECONDS).position
        except CancelledError:
            raise StoreBusy("this head is stopping; ask again in a moment") from None
        except TooLate:
            # The store may still take it.  What comes next goes into a new journal.
            self._origin, self._place, self._scopes = None, 0, {}
            reason = self._ingest.problem or "the store does not answer"
            raise StoreFull(f"the store has not confirmed the change: {reason}") from None
        rank = 0 if run is None else -1
        return [
            EventRow(
                origin.journal,
                run or RunId(""),
                origin.host,
                rank,
                now_ns,
                None,
                event.kind,
                event.body,
            )
            for event in events
        ]

    def _scope(self, run: RunId | None) -> tuple[int, list[Definition]]:
        if run is None:
            return 0, []
        number = self._scopes.setdefault(run, len(self._scopes) + 1)
        return number, [RunScope(number, run, run, rank=-1, world_size=0)]


def own_origin(now_ns: int) -> Origin:
    """Of a journal that this head writes straight into its store."""
    host, pid = this_host(), os.getpid()
    journal = new_journal_id(host, pid, now_ns, os.urandom(4).hex())
    return Origin(
        journal, host, pid, now_ns, boot_id(), start_ticks(pid) or 0, "agent", __version__
    )
