"""Events of a journal that says very much: of each kind the newest are enough for any view.

All journals together may have so many bytes in an answer, too.  Who has little keeps it all; the
rest is divided among those who have more.

To count costs as much as a short answer does, so a count is remembered.  If the fullest journal had
room for 500 more events, no journal can have too many before 500 more have come, whoever sent them;
with bytes it is the same.  Where one had too many, answers are cut from then on: that is right in
any case, and only slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from runwatch.store.store import AGENTS_SAY

OF_EACH_BYTES: Final = 16 << 20
"""Of bodies: as Python's objects they take some five times as much."""
OF_ALL_BYTES: Final = 48 << 20
ALWAYS_BYTES: Final = 16 << 10
"""Each may have so much, however many there are: what a process says of itself is less."""
MOST_KNOWN: Final = 4096
Asked: TypeAlias = tuple[int | None, tuple[str, ...], int]
"""Of which run (or all), of which kinds, and how many of each may be told."""


class Amount(NamedTuple):
    events: int
    bytes: int
    """Of their bodies."""


class Fullest(NamedTuple):
    """What one journal has of one kind at most."""

    events: int
    bytes: int
    all_bytes: int
    """Of all journals and kinds that were asked for."""

    def room(self, of_each: int) -> Amount:
        """How much more may come before something must be left out; negative: it must be now."""
        return Amount(
            of_each - self.events, min(OF_EACH_BYTES - self.bytes, OF_ALL_BYTES - self.all_bytes)
        )

    def is_over(self, of_each: int) -> bool:
        return min(self.room(of_each)) < 0


class Crowds:
    """`took` is called by the writer's thread, after its commit; the rest by any."""

    def __init__(self) -> None:
        self.taken = Amount(0, 0)
        """Since the store was opened."""
        self._enough_until: dict[Asked, Amount] = {}
        self._crowded: set[Asked] = set()

    def took(self, events: int, size: int) -> None:
        self.taken = Amount(self.taken.events + events, self.taken.bytes + size)

    def is_crowded(self, asked: Asked, taken: Amount) -> bool | None:
        """After so much was taken; None: somebody must count."""
        if asked in self._crowded:
            return True
        until = self._enough_until.get(asked)
        if until is None or taken.events > until.events or taken.bytes > until.bytes:
            return None
        return False

    def counted(self, asked: Asked, taken: Amount, fullest: Fullest) -> bool:
        """`taken` is what had come before the count began."""
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
    """How many bytes a journal may have of a kind, if they have these."""
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
    found = ", ".join(f"coalesce({column}, 0)" for column in columns)
    return f"SELECT {found} FROM ({amounts(rows)})"


def newest_of_each(rows: str, most: int, share: int) -> str:
    """The keys of the rows that are kept: their bodies are not held for that.

    `rows`: a query for journal, kind, time_ns, place and the body's size; `share`: bytes of each,
    but for agents, who speak of many.
    """
    # An event with a large body has several rows, of one place: all of them are kept, or none.
    newest = "OVER (PARTITION BY journal, kind ORDER BY time_ns DESC, place DESC)"
    count, size = f"dense_rank() {newest}", f"sum(size) {newest}"
    allowed = f"if(role = 'agent', {most * AGENTS_SAY}, {most})"
    bytes = f"if(role = 'agent', {OF_EACH_BYTES}, {share})"
    return (
        f"SELECT journal, kind, place FROM ({rows}) "
        "LEFT JOIN (SELECT number, role FROM journals) ON number = journal "
        f"QUALIFY {count} <= {allowed} AND ({count} = 1 OR {size} <= {bytes})"
    )
