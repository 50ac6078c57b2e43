"""Leaves out of an agent's records what is about runs of another head.

An agent has one journal for its whole node, and sends it to each head that has runs there.  What it
measured about a run of another head arrives without a run, as a measurement of the node.  What it
told about such a run (how its processes ended, their stacks) is left out: it is not that head's
business, and the run would appear there.  Positions stay as they are, so nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from runwatch.journal.reader import JournalReader
from runwatch.record import Batch, Definition, JournalId, RunId, RunScope, position

AGENT: Final = "agent"


class Sieve:
    """For one head.  Call it with the batches of a journal in their order."""

    def __init__(self, root: Path, is_ours: Callable[[JournalId, RunScope], bool]) -> None:
        self._root = root
        self._is_ours = is_ours
        self._others: dict[JournalId, set[int]] = {}
        """The scopes of each journal that are about runs of other heads."""

    def __call__(self, batch: Batch) -> Batch:
        if batch.origin.role != AGENT:
            return batch
        journal = batch.origin.journal
        if journal not in self._others:
            self._others[journal] = self._before(batch)
        others = self._others[journal]
        definitions = [self._sifted(each, journal, others) for each in batch.definitions]
        if not others:
            return batch
        events = [event for event in batch.events if event.scope not in others]
        return replace(batch, definitions=definitions, events=events)

    def forget(self, journal: JournalId) -> None:
        self._others.pop(journal, None)

    def _before(self, batch: Batch) -> set[int]:
        """The scopes that were defined earlier.  A segment repeats all definitions before it."""
        first = position(batch.start >> 32, 0)
        others: set[int] = set()
        if first == batch.start:
            return others
        reader = JournalReader(self._root / "journals" / batch.origin.journal, start=first)
        try:
            while (earlier := reader.read(until=batch.start)) is not None:
                for each in earlier.definitions:
                    self._sifted(each, batch.origin.journal, others)
        finally:
            reader.close()
        return others

    def _sifted(self, definition: Definition, journal: JournalId, others: set[int]) -> Definition:
        if not isinstance(definition, RunScope) or not definition.run:
            return definition
        if self._is_ours(journal, definition):
            return definition
        others.add(definition.id)
        return RunScope(definition.id, RunId(""), "")
