"""Values that a device is still computing.

The training thread queues them and goes on.  A small thread, started when the first one comes,
looks every few milliseconds which have arrived.  When the last of a step did is told with it: by
then the device was done with what it was handed before.
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
"""When a value came is told if it was looked for so shortly before; a thread that did not get to
run knows nothing."""
_LOOK_AHEAD: Final = 64  # one slow device must not hide what others have ready


@dataclass(slots=True)
class Said:
    """One thing a program asked to record."""

    name: str
    reading: Reading
    step: int
    labels: dict[str, str]
    all_hosts: bool
    by_record: bool
    """Said through `metrics.record`, which leaves out the system metrics' names."""
    mono_ns: int = 0
    """Monotonic time of the call; 0 is now."""
    there_ns: int = 0
    """When its value had come from the device, if it is the last of its step and that is known."""


class Collector:
    def __init__(self, deliver: Callable[[Said], None], clock: Clock = system_clock) -> None:
        self._deliver = deliver
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """As new; also in a forked child, where the parent's device values are out of reach."""
        self._queue: deque[Said] = deque()
        self._lock = threading.RLock()
        # A lock used as a flag: a signal handler that logs may set it while it is being set.
        self._wake = threading.Lock()
        self._stop = self._asleep = False
        self._missed_ns = 0
        """When a value was last looked for that had not come."""
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, said: Said) -> None:
        if len(self._queue) >= MAX_PENDING:
            tally.count(
                "device values", f"more than {MAX_PENDING} device values wait: the newest are lost"
            )
            return
        said.mono_ns = said.mono_ns or self._clock.mono_ns()
        self._queue.append(said)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="runwatch-collector", daemon=True
            )
            self._thread.start()
        if self._asleep:
            self._rouse()

    def finish(self, seconds: float) -> None:
        """Wait up to `seconds` for what is under way; what has not come by then is lost."""
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
        except RuntimeError as error:  # set already
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
        """Hand on what has arrived."""
        with self._lock:
            waiting: list[Said] = []
            begun_ns = self._clock.mono_ns()
            while self._queue and len(waiting) < _LOOK_AHEAD:
                said = self._queue.popleft()
                if not self._settle(said, in_order=not waiting):
                    waiting.append(said)
                    self._missed_ns = begun_ns
            self._queue.extendleft(reversed(waiting))

    def _settle(self, said: Said, in_order: bool) -> bool:
        """True if nothing more is to be done about it."""
        done: list[bool] = []
        self._try(said, done, in_order)
        return not done or done[0]  # a value that fails is given up

    @guarded("read a device value")
    def _try(self, said: Said, done: list[bool], in_order: bool) -> None:
        pending = cast(Pending, said.reading)
        if not pending.ready():
            done.append(False)
            return
        if in_order and (not self._queue or self._queue[0].step != said.step):
            now_ns = self._clock.mono_ns()
            # A device computes in order: this one had not come, either, when the last was missed.
            if now_ns - max(self._missed_ns, said.mono_ns) <= KNOWN_NS:
                said.there_ns = now_ns
        said.reading = pending.read()
        self._deliver(said)


def is_pending(reading: Any) -> bool:
    return hasattr(reading, "ready")
