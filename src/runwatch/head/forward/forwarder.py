"""The one thread of a forwarder.

It asks for rounds: each sends a little and says whether there may be more.  A round that fails
raises `Trouble`; the next one comes after a pause that doubles with every failure, up to a limit,
and is never shorter than the service asked for.  Nothing is kept in memory meanwhile: a round reads
what it sends.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.head.forward.report import Report

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_ASKED_SECONDS: Final = 3600.0
"""A service may ask for a pause, but not for a longer one."""
LAST_SECONDS: Final = 5.0
"""A round that is under way when the head ends has so long to notice."""
logger = logging.getLogger("runwatch.head")


class Trouble(RunwatchError):
    """A round could not be sent, and will be tried again."""

    def __init__(self, why: str, todo: str = "", retry_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.todo = todo
        self.retry_seconds = retry_seconds
        """How long the service asked to wait."""


class Source(Protocol):
    """What a forwarder sends, and where."""

    def round(self) -> bool:
        """Send a little; whether there may be more at once.  Raises `Trouble`, or a
        `RunwatchError` of the store."""
        ...

    def standing(self) -> Report:
        """From memory: any thread may ask."""
        ...

    def failed(self) -> None:
        """A round has failed: count what waits, and let go of the connection."""
        ...

    def interrupt(self) -> None:
        """Any thread: end the request that is under way."""
        ...

    def close(self) -> None:
        """The last call, in the forwarder's thread."""
        ...


@dataclass(frozen=True, slots=True)
class Pauses:
    """After the n-th failure in a row: twice as long as after the one before, with jitter so that
    many heads do not come back at the same moment."""

    longest_seconds: float = 300.0
    jitter: Callable[[], float] = random.random

    def after(self, failures: int, asked_seconds: float = 0.0) -> float:
        usual = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30), self.longest_seconds)
        return max(usual * (0.5 + self.jitter() / 2), min(asked_seconds, LONGEST_ASKED_SECONDS))


class Forwarder:
    def __init__(
        self,
        source: Source,
        *,
        idle_seconds: float,
        pauses: Pauses,
        clock: Clock = system_clock,
    ) -> None:
        """`idle_seconds`: how long it rests when there is nothing to send."""
        self._source = source
        self._idle_seconds = idle_seconds
        self._pauses = pauses
        self._clock = clock
        self._trouble: Trouble | None = None
        self._trouble_since_ns: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-forward", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report(self) -> Report:
        report, trouble = self._source.standing(), self._trouble
        if trouble is None:
            return report
        since_ns = self._trouble_since_ns
        return replace(report, problem=str(trouble), todo=trouble.todo, problem_since_ns=since_ns)

    def close(self) -> None:
        """Returns soon, whatever the service does: what was not sent is sent by the next head."""
        self._stopping.set()
        if self._thread.is_alive():
            self._source.interrupt()
            self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        try:
            self._forward()
        except BaseException as error:
            what = f"nothing is sent any more: {type(error).__name__}: {error}"
            self._begin(Trouble(what, "restart the head, and tell us what its log says"))
            raise
        finally:
            self._source.close()

    def _forward(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                pause = 0.0 if self._source.round() else self._idle_seconds
                self._over()
                failures = 0
            except RunwatchError as error:
                if self._stopping.is_set():
                    return
                trouble = error if isinstance(error, Trouble) else Trouble(str(error))
                self._begin(trouble)
                failures += 1
                pause = self._pauses.after(failures, trouble.retry_seconds)
                self._source.failed()
            self._stopping.wait(pause)

    def _begin(self, trouble: Trouble) -> None:
        if self._trouble is None:
            self._trouble_since_ns = self._clock.wall_ns()
        if self._trouble is None or str(self._trouble) != str(trouble):
            name = self._source.standing().name
            todo = f" ({trouble.todo})" if trouble.todo else ""
            logger.warning("%s: %s%s; it is kept, and sent later", name, trouble, todo)
        self._trouble = trouble

    def _over(self) -> None:
        if self._trouble is not None:
            logger.warning("%s takes data again", self._source.standing().name)
        self._trouble = self._trouble_since_ns = None
