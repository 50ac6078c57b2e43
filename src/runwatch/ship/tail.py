"""Following every journal of a directory, each from its own cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import is_alive
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import journal_directories
from runwatch.record import START, Batch, JournalId, Origin, Position

LIVENESS_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0


@dataclass(slots=True)
class Followed:
    """One journal and how far it was read and acknowledged."""

    reader: JournalReader
    origin: Origin
    acknowledged: Position = START
    started: bool = False
    """Whether we know where to read from."""
    dead: bool = False
    known_alive: bool = False
    done: bool = False
    """The writer is dead and everything was read."""
    checked_ns: int = field(default=0)
    idle_ns: int = field(default=0)
    """When it was last looked at and held nothing that was not read, monotonic."""


class Tail:
    """Discovers journals under `<root>/journals` and reads what is new, fairly, in order.

    `of_host` limits it to journals written on that host: with a shared directory every node's
    agent ships its own.  `start` tells where to begin with a journal; None means "not known yet".
    """

    def __init__(
        self,
        root: Path,
        *,
        of_host: str | None = None,
        start: Callable[[JournalId], Position | None] = lambda _: START,
        alive: Callable[[Origin], bool | None] = is_alive,
        clock: Clock = system_clock,
    ) -> None:
        self.root = root
        self.journals: dict[JournalId, Followed] = {}
        self._of_host = of_host
        self._start = start
        self._alive = alive
        self._clock = clock
        self._ignored: set[str] = set()

    def close(self) -> None:
        for followed in self.journals.values():
            followed.reader.close()

    def discover(self) -> list[Followed]:
        """Journals not seen before."""
        found = []
        for directory in journal_directories(self.root):
            if directory.name in self.journals or directory.name in self._ignored:
                continue
            reader = JournalReader(directory, clock=self._clock)
            if reader.origin is None:
                continue  # being created, or beyond reading; looked at again next time
            if self._of_host is not None and reader.origin.host != self._of_host:
                self._ignored.add(directory.name)
                continue
            followed = Followed(reader, reader.origin)
            self.journals[JournalId(directory.name)] = followed
            found.append(followed)
        return found

    def forget_missing(self) -> None:
        """Let go of journals whose directory retention has removed."""
        for name, followed in list(self.journals.items()):
            if followed.done and not followed.reader.directory.exists():
                followed.reader.close()
                del self.journals[name]

    def read(self) -> Iterator[tuple[Followed, Batch]]:
        """One stretch from each journal that has something new."""
        for name, followed in list(self.journals.items()):
            if followed.done:
                continue
            if not followed.started:
                start = self._start(name)
                if start is None:
                    continue
                self.resume(name, start)
            final = self._is_dead(followed)
            looked_ns = self._clock.mono_ns()
            batch = followed.reader.read(final=final)
            if batch is not None:
                yield followed, batch
                continue
            followed.idle_ns = looked_ns
            if final:
                followed.done = True
                followed.reader.close()

    def resume(self, journal: JournalId, position: Position) -> None:
        """Go on reading at `position`: where a head says it has got to."""
        followed = self.journals.get(journal)
        if followed is None:
            return
        followed.reader.seek(position)
        followed.acknowledged = position
        followed.started = True
        followed.done = False

    def alive(self) -> list[JournalId]:
        """The journals whose writers are there: the system says so, or their heart beat lately.

        The heart counts for those the system cannot tell us about: another host's, or another
        container's, in a directory that we share.
        """
        recent = self._clock.wall_ns() - HEARTBEAT_SECONDS * 1e9
        return [
            followed.origin.journal
            for followed in list(self.journals.values())
            if not self._is_dead(followed)
            and (followed.known_alive or followed.reader.heartbeat_ns > recent)
        ]

    def live(self) -> list[Origin]:
        """The processes that are not known to be dead."""
        return [f.origin for f in list(self.journals.values()) if not self._is_dead(f)]

    def _is_dead(self, followed: Followed) -> bool:
        """Whether the writer is gone; asked of the system once a second at most.

        Of a process that cannot be asked (another host's, in a shared directory) we never say so:
        its torn tail, if any, stays unread, which costs nothing.
        """
        now = self._clock.mono_ns()
        due = followed.checked_ns + LIVENESS_SECONDS * 1e9
        if not followed.dead and now >= due:
            followed.checked_ns = now
            alive = self._alive(followed.origin)
            followed.dead, followed.known_alive = alive is False, alive is True
        return followed.dead
