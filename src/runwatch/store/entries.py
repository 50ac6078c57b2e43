"""The catalogue's entries for one journal, one series and one span name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from runwatch.record import Origin, RunId, RunScope, Series, SpanName
from runwatch.rows import SeriesRow

Integers = npt.NDArray[np.int64]

# Local ids are small in every journal that we write.  A huge one (from damage or malice) must not
# make us allocate an array of that size, so it goes to a dict.
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
    """Local series id -> slot.  This is the truth; `slots` is a fast copy."""
    slots: Integers = field(default_factory=lambda: np.full(64, -1, np.int64))
    span_names: dict[int, int] = field(default_factory=dict)
    defined: list[int] = field(default_factory=list)
    """The slots of every series that it ever defined, ascending."""
    rows: dict[int, SeriesRow] = field(default_factory=dict)
    """Slot -> its cached row; cleared when a scope changes what rows say."""
    scope_at: dict[int, int] = field(default_factory=dict)
    """Scope -> its number among all scopes when it first named its run."""
    gone: set[int] = field(default_factory=set)
    """Scopes of deleted runs: their records are dropped …"""
    gone_until: dict[int, int] = field(default_factory=dict)
    """… and those of an agent up to this time, or while no such run exists again."""
    parted: dict[int, Series] = field(default_factory=dict)
    """An agent's series whose rows belong to a deleted run; defined anew when new points arrive."""

    def run_of(self, scope: int) -> RunId:
        named = self.scopes.get(scope)
        return named.run if named else RunId("")

    def rank_of(self, scope: int) -> int:
        named = self.scopes.get(scope)
        return named.rank if named else 0

    def place(self, local: int, slot: int) -> None:
        self.defined.append(slot)
        self.point(local, slot)

    def point(self, local: int, slot: int) -> None:
        """From now on the journal's local series id leads to this slot."""
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
        definition = self.parted.get(local) if slot is None else series[slot].definition
        return None if definition is None else definition.scope

    def scope(self, scope: RunScope) -> None:
        # In this order: a reader that holds the old `rows` cannot put an old row into the new ones.
        self.scopes[scope.id] = scope
        self.rows = {}
