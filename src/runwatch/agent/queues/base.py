"""What a scheduler is, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

ANSWER_SECONDS: Final = 10.0
"""How long we wait for a scheduler's answer: it may be overloaded."""


class NoAnswer(Exception):
    """The scheduler was asked, and gave no usable answer."""


class Waited(NamedTuple):
    """A job's time in the queue."""

    queued_at_ns: int
    """From when on the job could have started."""
    granted_at_ns: int | None = None
    """When the job got its machines; None: not known."""


class Job(NamedTuple):
    """One start of a job.  A job that is started again has waited again."""

    name: str
    go: str = ""


class Scheduler(Protocol):
    @property
    def name(self) -> str: ...

    def job(self, environment: Mapping[str, str], root: Path) -> Job | None:
        """The job of a process with this environment; None if another scheduler started it.

        `root`: where the agent finds the process's file system.
        """

    def ask(self, job: Job) -> Waited:
        """Slow.  Raises NoAnswer, OSError or ValueError."""
