"""Whether any journal has said more of a kind than may be told, without counting for each answer.

To count costs as much as a short answer does.  If the fullest journal had room for 500 more at the
last count, no journal can have too many before 500 more events have come, whoever sent them.  Where
one had too many, answers are cut from then on: that is right in any case, and only slower.
"""

from __future__ import annotations

from typing import Final, TypeAlias

MOST_KNOWN: Final = 4096
Asked: TypeAlias = tuple[int | None, tuple[str, ...], int]
"""Of which run (or all), of which kinds, and how many of each may be told."""


class Crowds:
    """`took` is called by the writer's thread, after its commit; the rest by any."""

    def __init__(self) -> None:
        self.events = 0
        """How many came since the store was opened."""
        self._enough_until: dict[Asked, int] = {}
        self._crowded: set[Asked] = set()

    def took(self, events: int) -> None:
        self.events += events

    def is_crowded(self, asked: Asked, events: int) -> bool | None:
        """After so many `events`; None: somebody must count."""
        if asked in self._crowded:
            return True
        return False if events <= self._enough_until.get(asked, -1) else None

    def counted(self, asked: Asked, events: int, fullest: int) -> bool:
        """The fullest journal had so many; `events` is what had come before the count began."""
        if len(self._enough_until) + len(self._crowded) >= MOST_KNOWN:
            self._enough_until.clear()
            self._crowded.clear()
        most = asked[2]
        if fullest > most:
            self._crowded.add(asked)
        else:
            self._enough_until[asked] = events + most - fullest
        return fullest > most
