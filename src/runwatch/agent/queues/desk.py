"""Asks schedulers, and never lets the agent wait for them.

The agent's loop calls `look` with the live processes.  Only the process of rank 0 leads to a
question: on a thousand nodes one agent asks, not a thousand.  A thread asks about one job after
the other, and ends when no question is left.  Its answers wait until the loop looks again: only
the loop writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.agent.attribution import environment_of
from runwatch.agent.collectors.base import Target
from runwatch.agent.queues.base import Job, NoAnswer, Scheduler, Waited
from runwatch.capture.process import as_its_user
from runwatch.clock import Clock
from runwatch.journal.liveness import PROC
from runwatch.record.node import JobQueued, QueueUnknown

TRIES: Final = 3
RETRY_SECONDS: Final = 60.0
KEPT_ANSWERS: Final = 256
"""Answers are kept, so that a program that restarts in its job causes no new question."""
END_SECONDS: Final = 1.0


class QueueEvent(NamedTuple):
    """An event to be recorded."""

    target: Target
    message: JobQueued | QueueUnknown


class _Question(NamedTuple):
    target: Target
    scheduler: Scheduler
    job: Job
    tries: int = 0
    not_before_ns: int = 0


class QueueDesk:
    def __init__(self, schedulers: Sequence[Scheduler], *, clock: Clock, proc: Path = PROC) -> None:
        self._schedulers = schedulers
        self._clock = clock
        self._proc = proc
        self._known: set[str] = set()
        self._answers: dict[tuple[str, Job], Waited] = {}
        self._open: deque[_Question] = deque()
        self._heard: deque[tuple[_Question, Waited | None, str]] = deque()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.failures = 0
        """How often a scheduler was asked and gave no answer."""

    def look(self, targets: Iterable[Target]) -> list[QueueEvent]:
        """Ask about new jobs; return the events to record.  Does not wait."""
        alive = {target.labels.get("journal", ""): target for target in targets}
        new = [target for journal, target in alive.items() if journal not in self._known]
        self._known = set(alive)
        self._open.extend(question for target in new for question in self._questions(target))
        events = [event for heard in self._take() for event in self._hear(*heard)]
        self._send()
        return events

    def stop(self) -> list[QueueEvent]:
        """Waits a little; returns the events for answers that have come by then."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=END_SECONDS)
        return [event for heard in self._take() for event in self._hear(*heard)]

    def _questions(self, target: Target) -> Iterator[_Question]:
        if target.labels.get("rank") != "0":
            return
        process = self._proc / str(target.pid)
        environment = environment_of(target.pid, proc=self._proc)
        if environment is None or environment.get("RUNWATCH_QUEUED_AT"):
            return  # not ours to read, or the user has set the time
        for scheduler in self._schedulers:
            with as_its_user(target.pid, proc=self._proc):  # reads files in its container
                job = scheduler.job(environment, process / "root")
            if job is not None:
                yield _Question(target, scheduler, job)
                return

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        now = self._clock.mono_ns()
        if self._thread is not None and self._thread.is_alive():
            return
        due = [question for question in self._open if question.not_before_ns <= now]
        if due and not self._stop.is_set():
            self._open = deque(question for question in self._open if question not in due)
            self._thread = threading.Thread(
                target=self._ask, args=(due,), name="runwatch-queues", daemon=True
            )
            self._thread.start()

    def _ask(self, questions: Sequence[_Question]) -> None:
        for question in questions:
            if self._stop.is_set():
                return
            key = question.scheduler.name, question.job
            answer, why = self._answers.get(key), ""
            if answer is None:
                try:
                    answer = self._answers[key] = question.scheduler.ask(question.job)
                    if len(self._answers) > KEPT_ANSWERS:
                        del self._answers[next(iter(self._answers))]
                except (NoAnswer, OSError, ValueError) as error:
                    why = f"{type(error).__name__}: {error}"
            self._heard.append((question, answer, why))

    # ── hearing ───────────────────────────────────────────────────────────────────────────────

    def _take(self) -> Iterator[tuple[_Question, Waited | None, str]]:
        while self._heard:
            yield self._heard.popleft()

    def _hear(self, question: _Question, answer: Waited | None, why: str) -> Iterator[QueueEvent]:
        target, job = question.target, question.job
        which = (target.labels.get("journal", ""), question.scheduler.name, job.name)
        if answer is not None:
            yield QueueEvent(target, JobQueued(*which, answer.queued_at_ns, answer.granted_at_ns))
            return
        self.failures += 1
        tries = question.tries + 1
        if tries < TRIES:
            later_ns = self._clock.mono_ns() + int(RETRY_SECONDS * 1e9)
            self._open.append(question._replace(tries=tries, not_before_ns=later_ns))
        else:
            yield QueueEvent(target, QueueUnknown(*which, why[:200], tries))
