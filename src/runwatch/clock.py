"""The only place that asks what time it is.

`mono_ns` keeps counting while a laptop sleeps (CLOCK_BOOTTIME where the system has it) and never
jumps; `wall_ns` is the time of day and may jump.  `tick_of` returns the cheapest clock that never
jumps.  It may stop while the machine sleeps, so `tick_shift`, its distance to `mono_ns`, is
constant only until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    @property
    def wall_ns(self) -> Callable[[], int]: ...
    @property
    def mono_ns(self) -> Callable[[], int]: ...
    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        """Wait up to `seconds`, or until `wake` (an Event's wait) returns True; True if woken."""
        ...


class SystemClock:
    # Attributes and not methods: callers that keep a reference save a Python frame.
    wall_ns: Callable[[], int] = staticmethod(time.time_ns)
    mono_ns: Callable[[], int] = staticmethod(partial(time.clock_gettime_ns, _BOOTTIME))
    tick_ns: Callable[[], int] = staticmethod(time.monotonic_ns)

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(max(seconds, 0.0))


system_clock = SystemClock()


class StillClock:
    """A moment.  For journals whose records bring their own times."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def wall_ns(self) -> int:
        return self._now_ns

    def mono_ns(self) -> int:
        return self._now_ns

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(max(seconds, 0.0))


def tick_of(clock: Clock) -> Callable[[], int]:
    return clock.tick_ns if isinstance(clock, SystemClock) else clock.mono_ns


def tick_shift(clock: Clock) -> int:
    """What to add to a tick to get `mono_ns`: the best of five readings, since one may be torn."""
    tick, mono, best, shift = tick_of(clock), clock.mono_ns, -1, 0
    for _ in range(5):
        before, now, after = tick(), mono(), tick()
        if best < 0 or after - before < best:
            best, shift = after - before, now - (before + after) // 2
    return shift


@dataclass(frozen=True, slots=True)
class Tick:
    scheduled_ns: int
    """The monotonic time at which this tick was due."""
    late_seconds: float


def every(
    seconds: float, *, until: Callable[[float], bool], clock: Clock = system_clock
) -> Iterator[Tick]:
    """Ticks that do not drift.  Missed ticks are skipped, and the next one says how late it is.

    `until` is `threading.Event.wait`: the iteration ends when it returns True.
    """
    period = int(seconds * 1e9)
    due = clock.mono_ns()
    while True:
        now = clock.mono_ns()
        if now < due and clock.wait((due - now) / 1e9, until):
            return
        if until(0):
            return
        now = clock.mono_ns()
        yield Tick(due, max(0.0, (now - due) / 1e9))
        due += period
        behind = clock.mono_ns() - due
        if behind > 0:
            due += -(-behind // period) * period
