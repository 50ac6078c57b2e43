"""Events of a journal that says very much: of each kind the newest are enough for any view.

To count costs as much as a short answer does, so a count is remembered.  If the fullest journal had
room for 500 more events, no journal can have too many before 500 more have come, whoever sent them;
with bytes it is the same.  Where one had too many, answers are cut from then on: that is right in
any case, and only slower.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from runwatch.store.store import AGENTS_SAY

OF_EACH_BYTES: Final = 16 << 20
"""Of bodies: as Python's objects they take some five times as much."""
MOST_KNOWN: Final = 4096
Asked: TypeAlias = tuple[int | None, tuple[str, ...], int]
"""Of which run (or all), of which kinds, and how many of each may be told."""


class Amount(NamedTuple):
    events: int
    bytes: int
    """Of their bodies."""


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

    def counted(self, asked: Asked, taken: Amount, fullest: Amount) -> bool:
        """What the fullest journals had; `taken` is what had come before the count began."""
        if len(self._enough_until) + len(self._crowded) >= MOST_KNOWN:
            self._enough_until.clear()
            self._crowded.clear()
        room = Amount(asked[2] - fullest.events, OF_EACH_BYTES - fullest.bytes)
        if min(room) < 0:
            self._crowded.add(asked)
            return True
        until = Amount(taken.events + room.events, taken.bytes + room.bytes)
        self._enough_until[asked] = until
        return False


def fullest(rows: str) -> str:
    """How many events, and how many bytes, a journal has of a kind at most.

    `rows`: a query for journal, kind and the body's size.
    """
    each = f"SELECT count(*) AS events, sum(size) AS bytes FROM ({rows}) GROUP BY journal, kind"
    return f"SELECT coalesce(max(events), 0), coalesce(max(bytes), 0)::BIGINT FROM ({each})"


def newest_of_each(rows: str, most: int) -> str:
    """The keys of the rows that are kept: their bodies are not held for that.

    `rows`: a query for journal, kind, time_ns, place and the body's size.
    """
    newest = "OVER (PARTITION BY journal, kind ORDER BY time_ns DESC, place DESC"
    count, size = f"row_number() {newest})", f"sum(size) {newest} ROWS UNBOUNDED PRECEDING)"
    allowed = f"if(role = 'agent', {most * AGENTS_SAY}, {most})"
    return (
        f"SELECT journal, kind, place FROM ({rows}) "
        "LEFT JOIN (SELECT number, role FROM journals) ON number = journal "
        f"QUALIFY {count} <= {allowed} AND ({count} = 1 OR {size} <= {OF_EACH_BYTES})"
    )
