"""Which runs have so many new records that their accounts should be drawn up and saved.

So the first look at a long run is quick, whether the run goes on or is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from runwatch.record import Batch, JournalId
from runwatch.record.life import RunEnd
from runwatch.record.node import ProcessExit

MANY_RECORDS: Final = 50_000
"""A run is looked at when one of its journals has so many new ones, and a tenth of all it has."""
LAST_RECORDS: Final = 10_000
"""When a journal ends, so many are enough."""


class Arrivals:
    """Counts what is stored of each journal.  The writer's thread calls it, so it is quick."""

    def __init__(self) -> None:
        self._new: dict[JournalId, int] = {}
        self._all: dict[JournalId, int] = {}

    def stored(self, batches: Iterable[Batch]) -> list[JournalId]:
        """The journals whose run should be looked at."""
        due: list[JournalId] = []
        for batch in batches:
            journal = batch.origin.journal
            if batch.origin.role != "agent" and batch.records:
                self._all[journal] = self._all.get(journal, 0) + batch.records
                self._new[journal] = self._new.get(journal, 0) + batch.records
                if self._new[journal] >= max(MANY_RECORDS, self._all[journal] // 10):
                    self._new[journal] = 0
                    due.append(journal)
            due += [journal for journal in _ended(batch) if self._forget(journal) >= LAST_RECORDS]
        return due

    def _forget(self, journal: JournalId) -> int:
        """How many were new."""
        self._all.pop(journal, None)
        return self._new.pop(journal, 0)


def _ended(batch: Batch) -> list[JournalId]:
    """The journals that an event of the batch says are at their end."""
    ended = [batch.origin.journal for event in batch.events if event.kind == RunEnd.KIND]
    exits = [ProcessExit.of(e.body) for e in batch.events if e.kind == ProcessExit.KIND]
    return ended + [JournalId(told.journal) for told in exits if told.journal]
