"""Runs that were deleted: what of the catalogue is hidden by that, and what is never taken again.

A deletion is a row in the catalogue.  From the moment it is stored nobody sees the run any more;
its rows go later, when it can no longer be undone (`DuckStore.purge`).  The row itself stays: a
journal that still lies on a node is acknowledged, and what it says of the run is dropped.

An id may be used again, for programs name their runs.  So a deletion means the processes that had
a part in the run when it was deleted, and those that began before that and were not heard of yet.
An agent lives longer than runs do: of what it says of a run, what is older than the deletion is
meant, and all of it as long as no new process of the run is known.
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
    """As it is stored, in this order."""

    number: int
    run: RunId
    name: str
    state: State
    at_ns: int
    """When it was said …"""
    purge_ns: int
    """… and when its rows go."""
    journals: int
    scopes: int
    series: int

    def means(self, origin: Origin, journal: int, scope: int) -> bool:
        """Whether a process's part in the run is gone, by the numbers of journal and scope."""
        known = journal < self.journals
        return scope < self.scopes or (not known and origin.start_ns <= self.at_ns)

    def row(self) -> tuple[Any, ...]:
        return (
            self.number, self.run, self.name, self.state, self.at_ns, self.purge_ns,
            self.journals, self.scopes, self.series,
        )  # fmt: skip

    def now(self, state: State) -> Deletion:
        return replace(self, state=state)


class Weight(NamedTuple):
    """What a run takes in a store."""

    points: int = 0
    spans: int = 0
    events: int = 0
    bytes: int = 0
    """About: files hold many runs."""


class Deletions:
    """Those that hold, in the order in which they were made."""

    def __init__(self) -> None:
        self._by_number: dict[int, Deletion] = {}

    @classmethod
    def of_rows(cls, rows: Iterable[Sequence[Any]]) -> Deletions:
        found = cls()
        for row in rows:
            found.take(Deletion(*row))
        return found

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
        return [each for each in self.all() if each.run == run]

    def has(self, number: int) -> bool:
        return number in self._by_number

    def hidden(self) -> list[int]:
        """The numbers of runs that have rows which nobody may see."""
        return [each.number for each in self.all() if each.state == "deleted"]

    def first_series(self, deletion: Deletion) -> int:
        """Series before it belong to earlier runs of the same id."""
        earlier = (each.series for each in self.of(deletion.run) if each.series < deletion.series)
        return max(earlier, default=0)
