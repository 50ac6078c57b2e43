"""Logs that cannot be flooded: a line that comes a thousand times is written a few times."""

from __future__ import annotations

import logging
import threading
from typing import Final, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.terminal import Formatter

BURST: Final = 5
MOST_LINES: Final = 60
"""Most lines per window of one logger: some put what varies into the message itself."""
WINDOW_SECONDS: Final = 60.0
MOST_KINDS: Final = 1_000
Key = TypeVar("Key", str, tuple[str, str])


class Sparing(logging.Filter):
    """Lets each kind of line through a few times a minute, and then says how many it held back.

    A kind is a logger and a message before its arguments are filled in.  All kinds of one logger
    together are limited as well.
    """

    def __init__(
        self, *, burst: int = BURST, most: int = MOST_LINES, clock: Clock = system_clock
    ) -> None:
        super().__init__()
        self._burst = burst
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], tuple[int, int]] = {}
        """Kind → since when it is counted, and how often it came."""
        self._lines: dict[str, tuple[int, int]] = {}
        """Logger → the same for the lines that were let through by kind."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, str(record.msg)[:200])
        now = self._clock.mono_ns()
        with self._lock:
            count, held_back = _counted(self._said, kind, now, self._burst)
            if count >= self._burst:
                return False
            lines, of_logger = _counted(self._lines, record.name, now, self._most)
            if lines >= self._most:
                return False
        held = [f"{held_back} more like this"] if held_back else []
        held += [f"{of_logger} others"] if of_logger else []
        if held:
            record.msg = f"{record.getMessage()} (and {' and '.join(held)} since)"
            record.args = None
        return True


def _counted(
    counts: dict[Key, tuple[int, int]], key: Key, now_ns: int, most: int
) -> tuple[int, int]:
    """How often it came before in this window, and how many of the last one were held back."""
    since, count = counts.get(key, (now_ns, 0))
    held_back = 0
    if now_ns - since >= WINDOW_SECONDS * 1e9:
        held_back, since, count = max(0, count - most), now_ns, 0
    counts[key] = since, count + 1
    if len(counts) > MOST_KINDS:
        del counts[next(iter(counts))]
    return count, held_back


def spare() -> None:
    """Add the filter to the root's handlers, so that it applies to every library that logs."""
    if logging.lastResort is not None and logging.lastResort.formatter is None:
        logging.lastResort.setFormatter(Formatter())
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        if handler is not None and not any(isinstance(f, Sparing) for f in handler.filters):
            handler.addFilter(Sparing())
