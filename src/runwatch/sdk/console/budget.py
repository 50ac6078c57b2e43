"""How much may be recorded: a bucket that fills again with time."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Of one process, or of one pipe of a command."""

    lines: int = 2_000
    lines_per_second: float = 200.0
    bytes: int = 8 << 20
    bytes_per_second: float = (8 << 20) / 86_400
    """The first 8 MB as they come, and then 8 MB a day, a stretch of lines now and then."""
    events: int = 100
    events_per_second: float = 10.0
    """Lines that come faster are bundled."""
    held_bytes: int = 128 << 10
    """What waits while it comes too fast.  The newest of it is recorded at the end in any case."""
    line_bytes: int = 8 << 10
    resume_lines: int = 100
    resume_bytes: int = 4 << 10
    """Once a budget is used up, it has to hold this much again: a gap is followed by a readable
    stretch, and not by a single line."""


class Bucket:
    def __init__(self, most: float, per_second: float, now_ns: int) -> None:
        self.level = most
        self._most = most
        self._per_ns = per_second / 1e9
        self._filled_ns = now_ns

    def fill(self, now_ns: int) -> float:
        """What is in it now."""
        if now_ns > self._filled_ns:
            gained = (now_ns - self._filled_ns) * self._per_ns
            self.level = min(self._most, self.level + gained)
            self._filled_ns = now_ns
        return self.level

    def take(self, amount: float) -> None:
        """It may go below empty: then it takes longer to fill."""
        self.level -= amount
