"""Whether the wall clock can be trusted when it says that something is old.

A clock that is set wrong makes everything old at once.  So after a jump nothing is deleted for a
day: by then somebody has set the clock right, or it was right all the time.  The same holds after a
start when the newest file is old: the head was away for long, or the clock has jumped.
"""

from __future__ import annotations

from typing import Final

from runwatch.clock import Clock, system_clock

JUMP_SECONDS: Final = 6 * 3600.0
ABSENT_SECONDS: Final = 7 * 86_400.0
WAIT_SECONDS: Final = 86_400.0


class SteadyClock:
    """Ask it now and then; `why` says what it waits for."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self.why = ""
        self._clock = clock
        self._shift_ns: int | None = None
        """How far the wall clock was ahead of the monotonic clock at the last look."""
        self._jumped_ns = 0

    def is_steady(self, newest_ns: int | None) -> bool:
        """`newest_ns`: the time of the newest stored record."""
        wall_ns, mono_ns = self._clock.wall_ns(), self._clock.mono_ns()
        shift_ns, before_ns = wall_ns - mono_ns, self._shift_ns
        self._shift_ns = shift_ns
        if before_ns is None:
            absent = 0.0 if newest_ns is None else (wall_ns - newest_ns) / 1e9
            if absent > ABSENT_SECONDS:
                self._begin(f"nothing was stored for {absent / 86_400:.0f} days", mono_ns)
        elif abs(moved := (shift_ns - before_ns) / 1e9) > JUMP_SECONDS:
            self._begin(f"the clock jumped by {moved / 86_400:+.1f} days", mono_ns)
        if self.why and mono_ns - self._jumped_ns >= WAIT_SECONDS * 1e9:
            self.why = ""
        return not self.why

    def _begin(self, what: str, mono_ns: int) -> None:
        self.why, self._jumped_ns = f"{what}: nothing is deleted for a day", mono_ns
