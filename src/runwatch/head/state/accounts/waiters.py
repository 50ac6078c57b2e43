"""Who waits for an account that takes long to draw up."""

from __future__ import annotations

from typing import Final

from runwatch.clock import Clock
from runwatch.store.asking import Question

PATIENCE_SECONDS: Final = 0.7
"""A page waits so long; then it shows what there is, and asks again."""
WANTED_SECONDS: Final = 10.0
"""A page asks again every second or two.  One that has not for so long was closed."""


class Waiters:
    """Those who wait for one account."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ns: dict[Question | None, int] = {}
        """By who asked."""

    def add(self, caller: Question | None) -> None:
        now_ns = self._clock.mono_ns()
        still_there = {one: until for one, until in self._until_ns.items() if until > now_ns}
        self._until_ns = still_there | {caller: now_ns + int(WANTED_SECONDS * 1e9)}

    @property
    def are_there(self) -> bool:
        now_ns = self._clock.mono_ns()
        return any(
            until_ns >= now_ns and not (caller and caller.is_over)
            for caller, until_ns in self._until_ns.items()
        )
