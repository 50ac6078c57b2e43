"""Following every journal of a directory, each from its own cursor."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import has_ended, is_alive
from runwatch.journal.reader import READ_BYTES, JournalReader
from runwatch.record import START, Batch, JournalId, Origin, Position

LIVENESS_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
LISTED_SECONDS = 5.0
"""So often a folder is listed anew though nothing says that it has changed."""
SETTLED_SECONDS = 2.0
"""A folder may change twice within one tick of the clock that says when it did."""
ASIDE_SECONDS = 10.0
"""What cannot be read is tried again so often."""
logger = logging.getLogger("runwatch.journal")


@dataclass(slots=True)
class Aside:
    """A journal that cannot be followed, and why."""

    why: str
    again_ns: int


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
    gone: bool = False
    """And nobody is left who could tell how it ended."""
    checked_ns: int = field(default=0)
    idle_ns: int = field(default=0)
    """When it was last looked at and held nothing that was not read, monotonic."""


class _Listing:
    """The names in a folder; there may be thousands, and new ones are looked for all the time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._changed_ns = -1
        self._noticed_ns = self._listed_ns = 0
        self._said = ""

    def look(self) -> set[str] | None:
        """None if they are surely what they were when we looked last."""
        now = self._clock.mono_ns()
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            if changed_ns != self._changed_ns:
                self._changed_ns, self._noticed_ns = changed_ns, now
            settled = self._listed_ns > self._noticed_ns + SETTLED_SECONDS * 1e9
            if settled and now < self._listed_ns + LISTED_SECONDS * 1e9:
                return None
            self._listed_ns = now
            return set(os.listdir(self._folder))
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            self._changed_ns = -1
            if self._said != str(error):
                self._said = str(error)
                logger.warning("journals cannot be listed: %s", error)
            return None

    def insist(self) -> None:
        """Something in it will change that it does not tell: list it at the next look."""
        self._changed_ns = -1


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
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.root = root
        self.read_bytes = read_bytes
        """So much of a journal at a time."""
        self.journals: dict[JournalId, Followed] = {}
        self._of_host = of_host
        self._start = start
        self._alive = alive
        self._clock = clock
        self._listing = _Listing(root / "journals", clock)
        self._ignored: set[str] = set()
        self.aside: dict[str, Aside] = {}
        """By their names: journals that cannot be read, or are not what they say."""
        self._most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def close(self) -> None:
        for followed in self.journals.values():
            followed.reader.close()

    def discover(self, *, surely: bool = False) -> list[Followed]:
        """Journals not seen before.  Those that retention has removed are let go.

        A folder that does not tell when it changes is looked at now and then, or `surely`.
        """
        if surely:
            self._listing.insist()
        names = self._listing.look()
        if names is None:
            return []
        self._ignored &= names
        self.aside = {name: aside for name, aside in self.aside.items() if name in names}
        for gone in [name for name in self.journals if name not in names]:
            self.journals.pop(gone).reader.close()
        now = self._clock.mono_ns()
        known = self.journals.keys() | self._ignored
        new = (name for name in sorted(names - known) if not self._waits(name, now))
        return [followed for name in new if (followed := self._follow(name)) is not None]

    def _waits(self, name: str, now: int) -> bool:
        aside = self.aside.get(name)
        return aside is not None and now < aside.again_ns

    def _follow(self, name: str) -> Followed | None:
        directory = self.root / "journals" / name
        try:
            reader = JournalReader(directory, clock=self._clock)
            if reader.origin is None:
                if directory.is_dir():
                    self._listing.insist()  # being created, or beyond reading
                return None
        except OSError as error:
            self._set_aside(name, f"cannot be read: {error}")
            return None
        if self._of_host is not None and reader.origin.host != self._of_host:
            self._ignored.add(name)
            return None
        if reader.origin.journal != name:
            self._set_aside(name, f"says that it is {str(reader.origin.journal)[:200]!r}")
            return None
        self.aside.pop(name, None)
        followed = self.journals[JournalId(name)] = Followed(reader, reader.origin)
        return followed

    def _set_aside(self, name: str, why: str) -> None:
        known = self.aside.get(name)
        if known is None or known.why != why:
            logger.warning("journal %r is set aside: it %s", name, why)
        self.aside[name] = Aside(why, self._clock.mono_ns() + int(ASIDE_SECONDS * 1e9))

    def read(self) -> Iterator[tuple[Followed, Batch]]:
        """One stretch from each journal that has something new."""
        going = [(name, each) for name, each in self.journals.items() if not each.done]
        for name, followed in going:
            if not followed.started:
                start = self._start(name)
                if start is None:
                    continue
                self.resume(name, start)
            final = self._is_dead(followed)
            looked_ns = self._clock.mono_ns()
            batch = followed.reader.read(final=final, max_bytes=self.read_bytes)
            if len(going) > self._most_open:
                followed.reader.close()  # it is opened again where we are
            if batch is not None:
                yield followed, batch
                continue
            if followed.reader.problem:
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
        followed.done = followed.gone = False

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

    def gone(self) -> list[JournalId]:
        """The journals whose writers are dead, and that were read to their end; not those of a
        host whose agent is still heard: it can tell how they ended."""
        journals = list(self.journals.values())
        heard = {f.origin.host for f in journals if f.origin.role == "agent" and not f.done}
        for followed in journals:
            followed.gone = followed.gone or followed.done and followed.origin.host not in heard
        return [followed.origin.journal for followed in journals if followed.gone]

    def live(self) -> list[Origin]:
        """The processes that are not known to be dead."""
        return [f.origin for f in list(self.journals.values()) if not self._is_dead(f)]

    def _is_dead(self, followed: Followed) -> bool:
        """Whether the writer is gone; asked of the system once a second at most.

        Of a process that cannot be asked about (another host's, in a shared directory) we say so
        only if an agent did: its torn tail, if any, stays unread, which costs nothing.
        """
        if followed.dead:
            return True
        now = self._clock.mono_ns()
        if now >= followed.checked_ns + LIVENESS_SECONDS * 1e9:
            followed.checked_ns = now
            alive = self._alive(followed.origin)
            if alive is None and has_ended(followed.reader.directory):
                alive = False
            followed.dead, followed.known_alive = alive is False, alive is True
        return followed.dead
