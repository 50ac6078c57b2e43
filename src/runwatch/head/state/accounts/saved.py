"""A fold as it is kept between two lives of a head, and whether a store still fits it.

A fold was made of certain records: all that the store held of some journals at one moment.  Each
journal has a mark of that moment: its cursor, and a tally of the records that counted.  Later the
store is asked for the tally up to the newest of those records.  If it is the same, only the
journal's newer records are missing.  If not (a record came late, or is gone), the fold is of no
use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runwatch.record import JournalId, Position, RunId
from runwatch.store.store import Tally
from runwatch.views.goodput.facts import Scribe
from runwatch.views.goodput.ledger import Ledger
from runwatch.views.goodput.saving import (
    packed,
    rules,
    scribe_of_state,
    scribe_state,
    unpacked,
)

VERSION: Final = 2


class Unfit(Exception):
    """The store does not hold what the fold was made of."""


@dataclass(frozen=True, slots=True)
class Mark:
    position: Position
    tally: Tally


@dataclass(frozen=True, slots=True)
class FoldState:
    ledger: Ledger
    scribes: dict[int, Scribe]
    lenient: set[int]
    started_ns: dict[JournalId, int]
    gone: set[JournalId]
    members: dict[JournalId, int]
    marks: dict[JournalId, Mark]
    told: int
    """Records that it is made of."""
    clocks: dict[tuple[int, str], int]
    """How far clocks are ahead, by attempt and host."""

    def ahead(self, cursor: Callable[[JournalId], Position]) -> dict[JournalId, int]:
        """The journals that have more by now, and since when; `Unfit` if one has less."""
        since_ns: dict[JournalId, int] = {}
        for journal, mark in self.marks.items():
            at = cursor(journal)
            if at < mark.position:
                raise Unfit(f"{journal} ends at {at}, before {mark.position}")
            if at > mark.position:
                since_ns[journal] = mark.tally.newest_ns + 1
        return since_ns

    @property
    def until(self) -> dict[JournalId, int]:
        return {journal: mark.tally.newest_ns for journal, mark in self.marks.items()}

    def check(self, tally: Mapping[JournalId, Tally]) -> None:
        for journal, mark in self.marks.items():
            if tally.get(journal) != mark.tally:
                raise Unfit(f"{journal} has {tally.get(journal)}, not {mark.tally}")

    def to_bytes(self) -> bytes:
        return packed(
            {
                "version": VERSION,
                "rules": rules(),
                "ledger": self.ledger.state(),
                "scribes": [[n, scribe_state(scribe)] for n, scribe in self.scribes.items()],
                "lenient": sorted(self.lenient),
                "started": list(self.started_ns.items()),
                "gone": sorted(self.gone),
                "members": list(self.members.items()),
                "marks": [
                    [name, m.position, m.tally.rows, m.tally.newest_ns, m.tally.total_ns]
                    for name, m in self.marks.items()
                ],
                "told": self.told,
                "clocks": [[*at, ns] for at, ns in self.clocks.items()],
            }
        )

    @classmethod
    def of_bytes(cls, run: RunId, saved: bytes) -> FoldState:
        """Raises ValueError for what other rules or another version made."""
        state: Any = unpacked(saved)
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ValueError(f"not a fold of version {VERSION}")
        if state["rules"] != rules():
            raise ValueError("a fold by other rules")
        ledger = Ledger.of_state(state["ledger"])
        return cls(
            ledger,
            {n: scribe_of_state(run, ledger, scribe) for n, scribe in state["scribes"]},
            set(state["lenient"]),
            dict(state["started"]),
            set(state["gone"]),
            dict(state["members"]),
            {name: Mark(Position(at), Tally(*tally)) for name, at, *tally in state["marks"]},
            state["told"],
            {(attempt, host): ns for attempt, host, ns in state["clocks"]},
        )
