"""Values that a device is still computing.

The training thread queues them and goes on.  A small thread, started with the first such value,
checks every few milliseconds which have arrived.  With the last value of a step it records when
that value arrived: by then the device had finished everything it was given before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from runwatch.clock import Clock, system_clock
from runwatch.interruption import let_pass
from runwatch.sdk.guard import guarded, tally
from runwatch.sdk.values.numbers import Pending, Reading

MAX_PENDING: Final = 10_000
POLL_SECONDS: Final = 0.01
KNOWN_NS: Final = 25_000_000
"""The arrival time of a value is known only if it was missing this shortly before: otherwise the
thread did not run in between."""
_LOOK_AHEAD: Final = 64  # one slow device must not hide values of others that are ready


@dataclass(slots=True)
class Logged:
    """One value that a program asked to record."""

    name: str
    reading: Reading
    step: int
    labels: dict[str, str]
    all_hosts: bool
    by_record: bool
    """From `metrics.record`, which leaves out the names of system metrics."""
    mono_ns: int = 0
    """Monotonic time of the call; 0 is now."""
    there_ns: int = 0
    """When its value arrived from the device, if it is the last of its step and that is known."""


class Collector:
    def __init__(self, deliver: Callable[[Logged], None], clock: Clock = system_clock) -> None:
        self._deliver = deliver
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Start anew; also in a forked child, which cannot reach the parent's device values."""
        self._queue: deque[Logged] = deque()
        self._lock = threading.RLock()
        # A lock used as a flag: a signal handler that logs may set it while it is being set.
        self._wake = threading.Lock()
        self._stop = self._asleep = False
        self._missed_ns = 0
        """When we last looked for a value that had not arrived."""
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, logged: Logged) -> None:
        if len(self._queue) >= MAX_PENDING:
            tally.count(
                "device values", f"more than {MAX_PENDING} device values wait: the newest are lost"
            )
            return
        logged.mono_ns = logged.mono_ns or self._clock.mono_ns()
        self._queue.append(logged)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="runwatch-collector", daemon=True
            )
            self._thread.start()
        if self._asleep:
            self._rouse()

    def finish(self, seconds: float) -> None:
        """Wait up to `seconds` for values that are on their way; the rest is lost."""
        deadline = self._clock.mono_ns() + int(seconds * 1e9)
        while self._queue and self._clock.mono_ns() < deadline:
            self.collect()
            if self._queue:
                self._clock.wait(POLL_SECONDS / 5, threading.Event().wait)
        if lost := len(self._queue):
            tally.count("device values", f"{lost} device values did not arrive in time", by=lost)
            self._queue.clear()
        self._stop = True
        self._rouse()
        if self._thread is not None:
            self._thread.join(timeout=0.2)
            self._thread = None

    def _rouse(self) -> None:
        try:
            self._wake.release()
        except RuntimeError as error:  # it is set already
            let_pass(error)

    def _run(self) -> None:
        while not self._stop:
            self.collect()
            self._asleep = not self._queue
            if self._asleep and not self._queue and not self._stop:
                self._wake.acquire(timeout=1.0)
            else:
                self._wake.acquire(timeout=POLL_SECONDS)
            self._asleep = False

    @guarded("collect device values")
    def collect(self) -> None:
        """Deliver the values that have arrived."""
        with self._lock:
            waiting: list[Logged] = []
            begun_ns = self._clock.mono_ns()
            while self._queue and len(waiting) < _LOOK_AHEAD:
                logged = self._queue.popleft()
                if not self._settle(logged, in_order=not waiting):
                    waiting.append(logged)
                    self._missed_ns = begun_ns
            self._queue.extendleft(reversed(waiting))

    def _settle(self, logged: Logged, in_order: bool) -> bool:
        """True if nothing more is to be done about it."""
        done: list[bool] = []
        self._try(logged, done, in_order)
        return not done or done[0]  # a value that fails is given up

    @guarded("read a device value")
    def _try(self, logged: Logged, done: list[bool], in_order: bool) -> None:
        pending = cast(Pending, logged.reading)
        if not pending.ready():
            done.append(False)
            return
        if in_order and (not self._queue or self._queue[0].step != logged.step):
            now_ns = self._clock.mono_ns()
            # A device computes in order: when the last one was missing, this one was too.
            if now_ns - max(self._missed_ns, logged.mono_ns) <= KNOWN_NS:
                logged.there_ns = now_ns
        logged.reading = pending.read()
        self._deliver(logged)


def is_pending(reading: Any) -> bool:
    return hasattr(reading, "ready")
