"""The one thread that keeps accounts up, and its queue.

A job is done in slices (`slices.py`).  Each slice goes to the most urgent job that can go on, so a
long job holds nobody up for longer than one slice.  Of the jobs that people wait for, the one with
the fewest slices so far is next (of several such, the newest): a short job does not wait for a long
one.  Of the others the oldest is finished first.  Work that nobody waits for pauses after each
slice, so that it takes only a part of one core.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from runwatch.clock import Clock
from runwatch.errors import Abandoned, RunwatchError
from runwatch.head.state.accounts.slices import BLOCKED, Slices
from runwatch.store.asking import LOOK_SECONDS, Question

THREAD: Final = "runwatch-goodput"
logger = logging.getLogger("runwatch.head")


class Priority(IntEnum):
    """Which job comes first."""

    WAITED_FOR = 0
    """Somebody waits for the account of a run."""
    LISTED = 1
    """The list of runs shows a run without its goodput."""
    CHANGED = 2
    """A run has many new records."""
    HEAVY = 3
    """An account holds too many records that are not folded yet."""
    UNSAVED = 4
    """An account that somebody asked for has grown since it was saved."""


PAUSE: Final = {Priority.CHANGED: 2.0, Priority.UNSAVED: 2.0}
"""Between two slices of a job: so many times as long as the slice took."""
REST: Final = {Priority.LISTED: 4.0, Priority.CHANGED: 9.0, Priority.UNSAVED: 9.0}
"""After a job."""


@dataclass(eq=False, slots=True)
class Job:
    name: str
    """For the log.  A job of the same name that has not begun is not queued twice."""
    begin: Callable[[], Slices[object]]
    priority: Callable[[], Priority | None]
    """Asked before each slice.  None: nobody wants it any more."""
    ended: threading.Event = field(default_factory=threading.Event)
    """It is done, has failed, or was given up."""
    slices: Slices[object] | None = None
    slices_done: int = 0
    has_begun: bool = False
    is_blocked: bool = False

    def end(self) -> None:
        if self.slices is not None:
            self.slices.close()
        self.ended.set()


class Worker:
    """The thread starts with the first job and stays until `close`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        """The oldest first."""
        self._resting: dict[Priority, int] = {}
        """Until when, by the monotonic clock."""
        self._thread: threading.Thread | None = None
        self._question = Question()
        """Everything that the thread asks of the store; given up by `close`."""

    def want(
        self,
        name: str,
        begin: Callable[[], Slices[object]],
        priority: Callable[[], Priority | None],
    ) -> Job:
        with self._changed:
            for job in self._jobs:
                if job.name == name and not job.has_begun:
                    return job
            job = Job(name, begin, priority)
            if self._question.is_over:
                job.end()
                return job
            self._jobs.append(job)
            self._start()
            self._changed.notify()
            return job

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def close(self) -> None:
        """What is under way is given up; what waits in the queue is dropped."""
        with self._changed:
            self._question.give_up("the head ends")
            self._changed.notify()
            thread = self._thread
        while thread is not None and thread.is_alive():
            self._question.give_up("the head ends")  # the engine may miss it once
            thread.join(LOOK_SECONDS)
        while self._jobs:
            self._jobs.pop().end()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            with self._question.asked():
                while (turn := self._next()) is not None:
                    self._do(*turn)
        finally:
            # After an error that nobody foresaw the other jobs go on in a new thread.
            with self._changed:
                if not self._question.is_over:
                    self._thread = None
                    self._start()

    def _next(self) -> tuple[Job, Priority | None] | None:
        """The job whose turn it is, once there is one; None when the worker is closed."""
        with self._changed:
            while not self._question.is_over:
                if (turn := self._most_urgent()) is not None:
                    return turn
                self._changed.wait(LOOK_SECONDS if self._jobs else None)
                self._unblock()
        return None

    def _most_urgent(self) -> tuple[Job, Priority | None] | None:
        now_ns = self._clock.mono_ns()
        ready: list[tuple[tuple[int, ...], Job, Priority]] = []
        for age, job in enumerate(self._jobs):
            priority = job.priority()
            if priority is None:
                return job, None
            if not job.is_blocked and self._resting.get(priority, now_ns) <= now_ns:
                takes_turns = priority is Priority.WAITED_FOR
                turn = (job.slices_done, -age) if takes_turns else (age,)
                ready.append(((priority, *turn), job, priority))
        return min(ready)[1:] if ready else None

    def _unblock(self) -> None:
        for job in self._jobs:
            job.is_blocked = False

    def _do(self, job: Job, priority: Priority | None) -> None:
        """One slice."""
        began_ns = self._clock.mono_ns()
        is_over = True
        try:
            is_over = priority is None or self._advance(job)
        except Abandoned as error:
            logger.info("%s: %s", job.name, error)
        except (RunwatchError, OSError) as error:  # a store that cannot be read now
            logger.warning("%s: %s", job.name, error)
        finally:
            if is_over:
                job.end()
                with self._changed:
                    self._jobs.remove(job)
        if priority is not None:
            times = (REST if is_over else PAUSE).get(priority, 0.0)
            now_ns = self._clock.mono_ns()
            self._resting[priority] = now_ns + int((now_ns - began_ns) * times)

    def _advance(self, job: Job) -> bool:
        """Whether the job is done."""
        if job.slices is None:
            job.slices = job.begin()
        job.has_begun = True
        outcome = next(job.slices, None)
        with self._changed:
            if outcome is BLOCKED:
                job.is_blocked = True
                job.has_begun = job.slices_done > 0
            else:
                job.slices_done += 1
                self._unblock()
        return outcome is None
