"""Logs that cannot be flooded: what is said a thousand times is written a few times."""

from __future__ import annotations

import logging
import threading
from typing import Final

from runwatch.clock import Clock, system_clock

BURST: Final = 5
WINDOW_SECONDS: Final = 60.0
MOST_KINDS: Final = 1_000


class Sparing(logging.Filter):
    """Lets each kind of line through a few times a minute, and then says how many it held back.

    A kind is a logger and the words before anything is put into them.
    """

    def __init__(self, *, burst: int = BURST, clock: Clock = system_clock) -> None:
        super().__init__()
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], tuple[int, int]] = {}
        """Kind → since when it is counted, and how often it came."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, str(record.msg)[:200])
        now = self._clock.mono_ns()
        with self._lock:
            since, count = self._said.get(kind, (now, 0))
            held_back = 0
            if now - since >= WINDOW_SECONDS * 1e9:
                held_back, since, count = max(0, count - self._burst), now, 0
            self._said[kind] = since, count + 1
            if len(self._said) > MOST_KINDS:
                del self._said[next(iter(self._said))]
        if count >= self._burst:
            return False
        if held_back:
            record.msg = f"{record.getMessage()} (and {held_back} more like this since)"
            record.args = None
        return True


def spare() -> None:
    """For the root's handlers, so that it holds for every library that logs."""
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None and not any(isinstance(f, Sparing) for f in handler.filters):
            handler.addFilter(Sparing())
