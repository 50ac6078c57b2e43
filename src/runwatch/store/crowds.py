"""Whether any journal has said more of a kind than may be told, without counting for each answer.

To count costs as much as a short answer does.  If the fullest journal had room for 500 more at the
last count, no journal can have too many before 500 more events have come, whoever sent them.
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
        self._room_until: dict[Asked, int] = {}

    def took(self, events: int) -> None:
        self.events += events

    def has_room(self, asked: Asked, events: int) -> bool:
        """Whether it is known that nobody has too many, after so many `events`."""
        return events <= self._room_until.get(asked, -1)

    def counted(self, asked: Asked, events: int, fullest: int) -> None:
        """The fullest journal had so many; `events` is what had come before the count began."""
        if len(self._room_until) >= MOST_KNOWN:
            self._room_until.clear()
        self._room_until[asked] = events + asked[2] - fullest
