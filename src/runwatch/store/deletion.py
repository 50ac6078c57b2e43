"""Deleted runs: what a deletion hides in the catalogue, and which records are refused afterwards.

A deletion is a row in the catalogue.  Once it is stored, the run is hidden.  Its rows are removed
later, when the deletion can no longer be undone (`DuckStore.purge`).  The deletion's row stays: a
journal that still lies on a node is acknowledged, but its records of the run are dropped.

A run's id may be used again, since programs name their runs.  So a deletion applies to the
processes that took part in the run when it was deleted, and to processes that began before the
deletion but were not known yet.  An agent outlives runs: of its records about the run, those older
than the deletion are dropped, and all of them while no new process of the run is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from runwatch.record import Origin, RunId

State = Literal["deleted", "restored", "purged"]
AGENT: Final = "agent"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A row of the table of deletions, in the order of its columns."""

    number: int
    run: RunId
    name: str
    state: State
    at_ns: int
    """When the run was deleted …"""
    purge_ns: int
    """… and when its rows may be removed."""
    journals: int
    scopes: int
    series: int

    def means(self, origin: Origin, journal: int, scope: int) -> bool:
        """Whether the deletion covers this process's part in the run.  `journal` and `scope` are
        the store's numbers."""
        existed = journal < self.journals
        return scope < self.scopes or (not existed and origin.start_ns <= self.at_ns)

    def row(self) -> tuple[Any, ...]:
        return (
            self.number, self.run, self.name, self.state, self.at_ns, self.purge_ns,
            self.journals, self.scopes, self.series,
        )  # fmt: skip

    def now(self, state: State) -> Deletion:
        return replace(self, state=state)


class Weight(NamedTuple):
    """How much of a store a run takes up."""

    points: int = 0
    spans: int = 0
    events: int = 0
    bytes: int = 0
    """An estimate: files hold several runs."""


class Deletions:
    """The deletions in force, in the order in which they were made."""

    def __init__(self) -> None:
        self._by_number: dict[int, Deletion] = {}

    @classmethod
    def of_rows(cls, rows: Iterable[Sequence[Any]]) -> Deletions:
        deletions = cls()
        for row in rows:
            deletions.take(Deletion(*row))
        return deletions

    def __bool__(self) -> bool:
        return bool(self._by_number)

    def take(self, deletion: Deletion) -> None:
        if deletion.state == "restored":
            self._by_number.pop(deletion.number, None)
        else:
            self._by_number[deletion.number] = deletion

    def all(self) -> list[Deletion]:
        return list(self._by_number.values())

    def of(self, run: str) -> list[Deletion]:
        return [deletion for deletion in self.all() if deletion.run == run]

    def has(self, number: int) -> bool:
        return number in self._by_number

    def hidden(self) -> list[int]:
        """The numbers of runs whose rows still exist but must not be seen."""
        return [deletion.number for deletion in self.all() if deletion.state == "deleted"]

    def first_series(self, deletion: Deletion) -> int:
        """Series with smaller numbers belong to earlier runs with the same id."""
        earlier = (
            other.series for other in self.of(deletion.run) if other.series < deletion.series
        )
        return max(earlier, default=0)
