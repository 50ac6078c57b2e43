"""What the catalogue knows of one journal, one series and one name of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from runwatch.record import Origin, RunId, RunScope, Series, SpanName
from runwatch.rows import SeriesRow

Integers = npt.NDArray[np.int64]

# Local ids are small in every journal we write; a huge one (damage, malice) must not make us
# allocate an array of that size, so it goes to a dict.
_DENSE_LIMIT: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class SeriesEntry:
    id: int
    journal: int
    definition: Series


@dataclass(frozen=True, slots=True)
class SpanNameEntry:
    number: int
    journal: int
    definition: SpanName


@dataclass(slots=True)
class Journal:
    number: int
    origin: Origin
    cursor: int = 0
    last_ns: int = 0
    scopes: dict[int, RunScope] = field(default_factory=dict)
    series: dict[int, int] = field(default_factory=dict)
    """Local series id -> slot; the truth, of which `slots` is the fast copy."""
    slots: Integers = field(default_factory=lambda: np.full(64, -1, np.int64))
    span_names: dict[int, int] = field(default_factory=dict)
    defined: list[int] = field(default_factory=list)
    """The slots of every series it ever defined, ascending."""
    rows: dict[int, SeriesRow] = field(default_factory=dict)
    """Slot -> the row that was made of it; begun anew when a scope changes what rows say."""
    scope_at: dict[int, int] = field(default_factory=dict)
    """Scope -> which of all scopes it was when it first named its run."""
    gone: set[int] = field(default_factory=set)
    """Scopes in runs that were deleted: what is said of them is dropped …"""
    gone_until: dict[int, int] = field(default_factory=dict)
    """… and an agent's, up to this time, or as long as there is no such run again."""
    parted: dict[int, Series] = field(default_factory=dict)
    """An agent's series whose rows are of a deleted run; defined anew when it goes on."""

    def run_of(self, scope: int) -> RunId:
        known = self.scopes.get(scope)
        return known.run if known else RunId("")

    def rank_of(self, scope: int) -> int:
        known = self.scopes.get(scope)
        return known.rank if known else 0

    def place(self, local: int, slot: int) -> None:
        self.defined.append(slot)
        self.point(local, slot)

    def point(self, local: int, slot: int) -> None:
        """The journal's series leads to this slot from now on."""
        self.series[local] = slot
        if not 0 <= local < _DENSE_LIMIT:
            return
        if local >= len(self.slots):
            grown = np.full(max(local + 1, 2 * len(self.slots)), -1, np.int64)
            grown[: len(self.slots)] = self.slots
            self.slots = grown
        self.slots[local] = slot

    def part(self, local: int, series: Series) -> None:
        self.parted[local] = series
        del self.series[local]
        if 0 <= local < len(self.slots):
            self.slots[local] = -1

    def scope_of(self, local: int, series: Sequence[SeriesEntry]) -> int | None:
        """The scope of a series by its local id; None: it was never defined."""
        slot = self.series.get(local)
        known = self.parted.get(local) if slot is None else series[slot].definition
        return None if known is None else known.scope

    def scope(self, scope: RunScope) -> None:
        # In this order: a reader that took `rows` before cannot put an old row into the new ones.
        self.scopes[scope.id] = scope
        self.rows = {}
