"""Time that passes only when told to."""

from __future__ import annotations

from collections.abc import Callable


class HandClock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def wall_ns(self) -> int:
        return self.now

    def mono_ns(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(0)


class JumpClock(HandClock):
    """Who waits is there at once."""

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        self.pass_seconds(seconds)
        return wake(0)
