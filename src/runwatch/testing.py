"""What our tests share with the tests of programs that use Runwatch (`docs/testing.md`).

`FakeClock` is time that a test moves, `until` waits for what a thread or a process does, `Journal`
writes what a program would have recorded and reads what one did.  Nothing here needs a head.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECOND = 1_000_000_000


class FakeClock:
    """A clock that stands still until it is moved.

    It takes the place of `runwatch.clock.SystemClock`.  The time on the wall and the time that
    only counts differ from the start, so that a program that mixes them up fails its test.
    """

    def __init__(
        self,
        wall_ns: int = 1_700_000_000 * SECOND,
        mono_ns: int = 5_000 * SECOND,
        *,
        jumps: bool = False,
    ) -> None:
        self.wall, self.mono = wall_ns, mono_ns
        self.jumps = jumps
        """Who waits is there at once.  Else a wait takes no time."""

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    @property
    def now_ns(self) -> int:
        """What the wall says; who sets it moves both, as time that passes does."""
        return self.wall

    @now_ns.setter
    def now_ns(self, wall_ns: int) -> None:
        self.mono += wall_ns - self.wall
        self.wall = wall_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        if self.jumps:
            self.advance(seconds)
        return wake(0)


# A lambda in a loop names the loop's variables as its own: `until(lambda n=n: len(found) == n)`.
def until(condition: Callable[..., T | None], seconds: float = 30.0, what: str = "") -> T:
    """Wait until a condition holds, and return its value; after `seconds` the test fails.

    What takes long to ask is asked less often: who is waited for needs the processor, too.
    """
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        time.sleep(min(max(0.005, 3 * (now - asked)), 0.1))
        asked = time.monotonic()
    return value
