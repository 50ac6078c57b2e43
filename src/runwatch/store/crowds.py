"""Limits answers with events when one journal has very many: views need only the newest per kind.

The events of all journals in one answer also share a limit in bytes.  A journal with few events
keeps all of them; the rest of the limit is divided among the journals with more.

Counting costs as much as a short answer, so counts are remembered.  If the fullest journal had room
for 500 more events, no journal can be over the limit before 500 more events arrive, from whomever;
the same holds for bytes.  Once a journal is over the limit, answers are cut from then on.  That is
always correct, only slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from runwatch.store.store import AGENTS_SAY

OF_EACH_BYTES: Final = 16 << 20
"""Limit for the event bodies of one journal and kind; in Python they take 5 times as much."""
OF_ALL_BYTES: Final = 48 << 20
ALWAYS_BYTES: Final = 16 << 10
"""Every journal may have this much: what a process records about itself is less."""
MOST_KNOWN: Final = 4096
Asked: TypeAlias = tuple[int | None, tuple[str, ...], int]
"""Which run (None: all), which kinds, and how many events of each kind."""


class Amount(NamedTuple):
    events: int
    bytes: int
    """The size of the events' bodies."""


class Fullest(NamedTuple):
    """The largest amounts that any journal has of one kind."""

    events: int
    bytes: int
    all_bytes: int
    """The sum over all journals and kinds that were asked for."""

    def room(self, of_each: int) -> Amount:
        """How much more may arrive before answers must be cut; negative: they must be cut now."""
        return Amount(
            of_each - self.events, min(OF_EACH_BYTES - self.bytes, OF_ALL_BYTES - self.all_bytes)
        )

    def is_over(self, of_each: int) -> bool:
        return min(self.room(of_each)) < 0


class Crowds:
    """The writer's thread calls `took`, after its commit; any thread calls the rest."""

    def __init__(self) -> None:
        self.taken = Amount(0, 0)
        """Events stored since the store was opened."""
        self._enough_until: dict[Asked, Amount] = {}
        self._crowded: set[Asked] = set()

    def took(self, events: int, size: int) -> None:
        self.taken = Amount(self.taken.events + events, self.taken.bytes + size)

    def is_crowded(self, asked: Asked, taken: Amount) -> bool | None:
        """Whether answers must be cut, at this amount; None: count first."""
        if asked in self._crowded:
            return True
        until = self._enough_until.get(asked)
        if until is None or taken.events > until.events or taken.bytes > until.bytes:
            return None
        return False

    def counted(self, asked: Asked, taken: Amount, fullest: Fullest) -> bool:
        """Remember a count; `taken` is the amount stored before the count began."""
        if len(self._enough_until) + len(self._crowded) >= MOST_KNOWN:
            self._enough_until.clear()
            self._crowded.clear()
        if fullest.is_over(asked[2]):
            self._crowded.add(asked)
            return True
        room = fullest.room(asked[2])
        until = Amount(taken.events + room.events, taken.bytes + room.bytes)
        self._enough_until[asked] = until
        return False


def fair_share(sizes: Iterable[int]) -> int:
    """How many bytes a journal may have of one kind, if the journals have these sizes."""
    ascending, left = sorted(sizes), OF_ALL_BYTES
    for number, size in enumerate(ascending):
        share = left // (len(ascending) - number)
        if size > share:
            return min(max(share, ALWAYS_BYTES), OF_EACH_BYTES)
        left -= size
    return OF_EACH_BYTES


def amounts(rows: str) -> str:
    """How many events and bytes each journal has of each kind.

    `rows`: a query for journal, kind and the body's size.
    """
    return (
        "SELECT count(*) AS events, sum(size)::BIGINT AS bytes "
        f"FROM ({rows}) GROUP BY journal, kind"
    )


def fullest(rows: str) -> str:
    columns = ("max(events)", "max(bytes)", "sum(bytes)::BIGINT")
    maxima = ", ".join(f"coalesce({column}, 0)" for column in columns)
    return f"SELECT {maxima} FROM ({amounts(rows)})"


def newest_of_each(rows: str, most: int, share: int) -> str:
    """SQL for the keys of the rows to keep, without their bodies.

    `rows`: a query for journal, kind, time_ns, place and the body's size.  `share`: the bytes that
    each journal may have; agents may have more, since they report on many processes.
    """
    # An event with a large body has several rows with one place: keep all of them or none.
    newest = "OVER (PARTITION BY journal, kind ORDER BY time_ns DESC, place DESC)"
    count, size = f"dense_rank() {newest}", f"sum(size) {newest}"
    allowed = f"if(role = 'agent', {most * AGENTS_SAY}, {most})"
    bytes = f"if(role = 'agent', {OF_EACH_BYTES}, {share})"
    return (
        f"SELECT journal, kind, place FROM ({rows}) "
        "LEFT JOIN (SELECT number, role FROM journals) ON number = journal "
        f"QUALIFY {count} <= {allowed} AND ({count} = 1 OR {size} <= {bytes})"
    )
