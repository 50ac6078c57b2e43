"""What a scheduler is, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

ANSWER_SECONDS: Final = 10.0
"""A scheduler that does not answer in this time has other worries."""


class NoAnswer(Exception):
    """It was asked, and did not tell."""


class Waited(NamedTuple):
    """A job's time in the queue."""

    queued_at_ns: int
    """From when on it could have been started."""
    granted_at_ns: int | None = None
    """When it had its machines; None is not known."""


class Job(NamedTuple):
    """One go of a job: who was started again has waited again."""

    name: str
    go: str = ""


class Scheduler(Protocol):
    @property
    def name(self) -> str: ...

    def job(self, environment: Mapping[str, str], root: Path) -> Job | None:
        """The job of a process with this environment, which sees its files under `root`; None if
        it is not one of this scheduler's."""

    def ask(self, job: Job) -> Waited:
        """Takes a while.  Raises NoAnswer, OSError or ValueError."""
