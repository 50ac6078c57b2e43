"""How a forwarder stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runwatch.record import Batch


@dataclass(frozen=True, slots=True)
class Report:
    to: str
    """A name for programs: `cloud_logging`."""
    name: str
    """And for people: `Cloud Logging`."""
    sent: int = 0
    """What the service has taken, since it was first asked to."""
    waiting: int = 0
    waiting_since_ns: int | None = None
    """The time of the oldest record that waits; None if none does."""
    lost: int = 0
    """What the service will never take: too old, or not as it wants it."""
    lost_why: str = ""
    """Why the last of these was refused."""
    problem: str = ""
    """Why nothing is sent at the moment; empty when all is well."""
    todo: str = ""
    """What a person can do about it."""
    problem_since_ns: int | None = None
    note: str = ""
    """What else a person should know."""


class Forwarding(Protocol):
    """What sends stored records on.  A head that listens starts and ends it."""

    def start(self) -> None: ...

    def stored(self, batches: Sequence[Batch]) -> None:
        """Called by the one writer, after the store has them: it must take no time."""
        ...

    def reports(self) -> Sequence[Report]:
        """From memory: any thread may ask."""
        ...

    def close(self) -> None: ...
