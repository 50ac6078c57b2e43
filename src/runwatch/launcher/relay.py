"""Passes on what the command writes: untouched, at once, and with the command held back as before.

Each outlet has a thread that reads, writes, and only then hands the bytes to those who record them.
If the reader of our stdout goes away, our end is closed: the command's next write fails, as it does
without us.  A disk that is full under the file that we write to is no reason to stop the command:
what does not fit is dropped.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Final

from runwatch.launcher.keys import Keys
from runwatch.launcher.outlets import PIPE_BYTES, Outlet

READ_BYTES: Final = 256 << 10
_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL
_LOOK_MS: Final = 100
"""How often a terminal's settings are compared while the command has changed them."""


class Relay(threading.Thread):
    """From an outlet to its target, until everybody has closed the outlet."""

    def __init__(
        self, outlet: Outlet, record: Callable[[bytes], None], over: Callable[[Relay], None]
    ) -> None:
        super().__init__(name="runwatch-relay", daemon=True)
        self.outlet = outlet
        self._record = record
        self._over = over
        self._passing = threading.Lock()
        """Held while bytes that were read are not written yet."""
        self.passed_bytes = 0
        self._mirror = outlet.mirror
        self._keys = Keys(outlet.source)

    def run(self) -> None:
        waiting = select.poll()
        waiting.register(self.outlet.source, select.POLLIN)
        waiting.register(self.outlet.target, 0)
        try:
            while self._pass(waiting):
                pass
        finally:
            if self._mirror is not None:
                self._mirror.look()
                self._keys.look(False, waiting)
            with self._passing:
                self.outlet.close()
            self._over(self)

    def _pass(self, waiting: select.poll) -> bool:
        """One piece; False if there will be no other."""
        limit = _LOOK_MS if self._mirror is not None and self._mirror.is_changed else None
        ready = dict(waiting.poll(limit))
        if self._mirror is not None:
            self._mirror.look()
            self._keys.look(self._mirror.is_raw, waiting)
            if self._keys.number in ready:
                self._keys.pass_on()
        if ready.get(self.outlet.target, 0) & _GONE:
            return False
        if self.outlet.source not in ready:
            return True
        with self._passing:
            try:
                data = os.read(self.outlet.source, READ_BYTES)
            except OSError:  # a terminal without a writer
                return False
            if not data:
                return False
            written = self._write(data)
            self.passed_bytes += len(data)
            self._record(data)
        return written

    def _write(self, data: bytes) -> bool:
        """False if nobody will ever read what is written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.outlet.target, rest) :]
            except BlockingIOError:  # somebody who has the same open file wants it so
                select.select([], [self.outlet.target], [])
            except BrokenPipeError:
                return False
            except OSError:
                # A terminal that is gone has no reader; a full disk may have room again.
                return not self.outlet.is_terminal
        return True

    def is_idle(self) -> bool:
        """Whether all that was written to the outlet until now has been passed on."""
        if not self.is_alive():
            return True
        with self._passing:
            if self.outlet.source < 0:
                return True
            look = select.poll()
            look.register(self.outlet.source, select.POLLIN)
            return not look.poll(0)


def drained(relays: list[Relay], wait: Callable[[], None]) -> None:
    """Returns when everything is passed on that was there at the call.  Others may go on writing:
    no more than a full pipe was there."""
    goals = [(relay, relay.passed_bytes + PIPE_BYTES) for relay in relays]
    while any(relay.passed_bytes < goal and not relay.is_idle() for relay, goal in goals):
        wait()
