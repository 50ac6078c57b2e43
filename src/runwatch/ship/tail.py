"""Following every journal of a directory, each from its own cursor.

A problem with one journal affects only that journal: it is set aside, with the reason, and the
others go on.  A problem with its files may pass, so the journal is tried again after a while.  A
problem with its contents is tried again only by another version of Runwatch, which may be able to
read it.
"""

from __future__ import annotations

import logging
import os
import resource
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runwatch._version import __version__
from runwatch.clock import Clock, system_clock
from runwatch.errors import SegmentError
from runwatch.journal.liveness import has_ended, is_alive
from runwatch.journal.reader import READ_BYTES, JournalReader
from runwatch.record import START, Batch, JournalId, Origin, Position
from runwatch.record.door import origin_problem
from runwatch.ship.estates import Estates

LIVENESS_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
LISTED_SECONDS = 5.0
"""How often a folder is listed although its modification time has not changed."""
SETTLED_SECONDS = 2.0
"""A folder may change twice within one tick of its modification time."""
AGAIN_SECONDS: Final = 10.0
LONGEST_AGAIN_SECONDS: Final = 600.0
"""A journal whose files cannot be read is tried again after this long, then twice as long …"""
FAILURES: Final = (
    OSError,
    SegmentError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    struct.error,
    RecursionError,
)
"""Errors that one journal may cause; they affect only that journal."""
_MOST_ASIDE: Final = 10_000
logger = logging.getLogger("runwatch.ship")


class NotTaken(SegmentError):
    """The head does not take a journal because a limit is reached.  That may pass."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A journal that is set aside, and why."""

    journal: JournalId
    why: str
    since_ns: int
    """Wall clock."""
    again_ns: int | None = None
    """When we try it again, monotonic; None: only another version of Runwatch tries."""
    pause_seconds: float = AGAIN_SECONDS
    version: str = __version__
    by_head: bool = False
    """The head refused it.  It stays set aside, even while we try, until the head takes it."""


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
    """It is done, and no agent is left that could say how it ended."""
    checked_ns: int = field(default=0)
    idle_ns: int = field(default=0)
    """When we last looked and everything was read, monotonic."""


class Listing:
    """The names in a folder.  There may be thousands, and we look for new ones all the time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._changed_ns = -1
        self._noticed_ns = self._listed_ns = 0
        self._said = ""

    def look(self) -> set[str] | None:
        """The names; None if they have surely not changed since the last look."""
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
                logger.warning("cannot list the journals: %s", error)
            return None

    def insist(self) -> None:
        """List the folder at the next look, even if its modification time stays the same."""
        self._changed_ns = -1


class Tail:
    """Discovers journals under `<root>/journals` and reads what is new, in turn.

    `of_host` limits it to journals written on that host: in a shared directory every node's agent
    ships its own journals and, with `estates`, those of hosts that are gone.  `takes` says whether
    a journal is for us; call `look_again` when it may say something else.  `start` returns where to
    begin with a journal; None means "not known yet".
    """

    def __init__(
        self,
        root: Path,
        *,
        of_host: str | None = None,
        estates: Estates | None = None,
        takes: Callable[[JournalId], bool] = lambda _: True,
        start: Callable[[JournalId], Position | None] = lambda _: START,
        alive: Callable[[Origin], bool | None] = is_alive,
        clock: Clock = system_clock,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.root = root
        self.read_bytes = read_bytes
        """How much of a journal to read at a time."""
        self.journals: dict[JournalId, Followed] = {}
        self._of_host = of_host
        self._estates = estates
        self._takes = takes
        self._looks_again = False
        self._start = start
        self._alive = alive
        self._clock = clock
        self._listing = Listing(root / "journals", clock)
        self._ignored: set[str] = set()
        self._inherited: set[str] = set()
        self._aside: dict[str, Aside] = {}
        self._said = ""
        self._most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def close(self) -> None:
        for followed in self.journals.values():
            followed.reader.close()
        if self._estates is not None:
            self._estates.close()

    def discover(self, *, surely: bool = False) -> list[Followed]:
        """Journals not seen before.  Drops those that retention has removed.

        Lists the folder now and then even if it shows no change; with `surely`, lists it now.
        """
        if surely or self._looks_again:
            self._listing.insist()
        if self._looks_again:
            self._looks_again = False
            self._ignored.clear()
        due = self._due() | self._inherit()
        if due:
            self._listing.insist()
        try:
            names = self._listing.look()
        except OSError as error:  # too many open files, or the folder is not readable
            self._say(f"cannot list {self.root / 'journals'}: {error}")
            return []
        if names is None:
            return []
        self._ignored &= names
        self._inherited &= names
        for gone in [name for name in self._aside if name not in names]:
            del self._aside[gone]
        for gone in [name for name in self.journals if name not in names]:
            self.journals.pop(gone).reader.close()
        if self._estates is not None:
            self._estates.forget(names)
        seen = self.journals.keys() | self._ignored | (self._aside.keys() - due)
        new = sorted(names - seen)
        return [followed for name in new if (followed := self._try_to_follow(name)) is not None]

    def look_again(self) -> None:
        """Consider again the journals that were not for us.  Any thread may call it."""
        self._looks_again = True

    def _due(self) -> set[str]:
        now = self._clock.mono_ns()
        due = [a for a in self._aside.values() if a.again_ns is not None and a.again_ns <= now]
        return {aside.journal for aside in due}

    def _inherit(self) -> set[str]:
        """The journals of gone hosts that are ours from now on.  Drops the journals of hosts that
        are back."""
        if self._estates is None:
            return set()
        came: set[str] = set()
        for origin, is_ours in self._estates.look():
            if is_ours:
                self._ignored.discard(origin.journal)
                self._inherited.add(origin.journal)
                came.add(origin.journal)
            else:
                self._inherited.discard(origin.journal)
                self._ignored.add(origin.journal)
                if (followed := self.journals.pop(origin.journal, None)) is not None:
                    followed.reader.close()
        return came

    def _try_to_follow(self, name: str) -> Followed | None:
        try:
            followed = self._follow(name)
        except FAILURES as error:
            self.set_aside(JournalId(name), error)
            return None
        aside = self._aside.get(name)
        if followed is not None and aside is not None and not aside.by_head:
            del self._aside[name]
            logger.warning("journal %a can be read again", name)
        return followed

    def taken(self, journal: JournalId) -> None:
        """The head has stored something of this journal."""
        if self._aside and (aside := self._aside.get(journal)) is not None and aside.by_head:
            del self._aside[journal]
            logger.warning("the head takes journal %a again", journal)

    def _follow(self, name: str) -> Followed | None:
        directory = self.root / "journals" / name
        reader = JournalReader(directory, clock=self._clock)
        if reader.origin is None:
            if directory.is_dir():
                self._listing.insist()  # it is being created, or cannot be read
            return None
        if not self._takes(JournalId(name)):
            self._ignored.add(name)
            return None
        if problem := origin_problem(reader.origin):
            raise SegmentError(f"its origin is impossible: {problem}")
        if reader.origin.journal != name:
            # Its records would be stored as those of the journal whose name it has inside.
            raise SegmentError(
                f"it says that it is journal {reader.origin.journal!r}: it is a copy, or forged"
            )
        is_strange = self._of_host is not None and reader.origin.host != self._of_host
        if is_strange and name not in self._inherited:
            self._ignored.add(name)
            if self._estates is not None:
                self._estates.meet(reader.origin)
            return None
        followed = self.journals[JournalId(name)] = Followed(reader, reader.origin)
        if is_strange and self._estates is not None:
            followed.dead = self._estates.surely_dead(reader.origin)
        return followed

    def read(self) -> Iterator[tuple[Followed, Batch]]:
        """One stretch from each journal that has something new."""
        going = [(n, journal) for n, journal in self.journals.items() if not journal.done]
        for name, followed in going:
            if not followed.started:
                start = self._start(name)
                if start is None:
                    continue
                self.resume(name, start)
            looked_ns = self._clock.mono_ns()
            try:
                final = self._is_dead(followed)
                batch = followed.reader.read(final=final, max_bytes=self.read_bytes)
            except FAILURES as error:
                self.set_aside(name, error)
                continue
            if len(going) > self._most_open:
                followed.reader.close()  # the next read opens it again at the same position
            if batch is not None:
                yield followed, batch
                continue
            if followed.reader.problem:
                continue
            followed.idle_ns = looked_ns
            if final:
                followed.done = True
                followed.reader.close()

    def set_aside(self, journal: JournalId, error: Exception) -> None:
        """Stop following a journal: reading it or sending its records has failed."""
        followed, before = self.journals.pop(journal, None), self._aside.get(journal)
        if followed is not None:
            followed.reader.close()
        if before is None and len(self._aside) >= _MOST_ASIDE:
            self._ignored.add(journal)
            return
        why, pause, again_ns = _words(error), AGAIN_SECONDS, None
        if before is not None:
            pause = min(before.pause_seconds * 2, LONGEST_AGAIN_SECONDS)
        by_head = isinstance(error, NotTaken)
        if isinstance(error, OSError) or by_head:
            again_ns = self._clock.mono_ns() + int(pause * 1e9)
        if before is None or before.why != why:
            logger.warning("journal %a is set aside: %s", journal, why)
        since_ns = self._clock.wall_ns() if before is None else before.since_ns
        self._aside[journal] = Aside(journal, why, since_ns, again_ns, pause, by_head=by_head)

    def try_again(self) -> None:
        """Another head, or the same head with other limits, may take what the last one refused."""
        now = self._clock.mono_ns()
        for journal, aside in self._aside.items():
            if aside.by_head:
                self._aside[journal] = replace(aside, again_ns=now, pause_seconds=AGAIN_SECONDS / 2)

    def is_aside(self, journal: JournalId) -> bool:
        return journal in self._aside

    def aside(self) -> list[Aside]:
        """The journals that are set aside, by name.  Any thread may ask."""
        asides = list(dict(self._aside).values())
        if self._estates is not None:
            asides += [
                Aside(unsent.journal, unsent.why, unsent.since_ns, 0)
                for unsent in self._estates.unsent
            ]
        return sorted(asides, key=lambda aside: aside.journal)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            logger.warning("%s", problem)

    def resume(self, journal: JournalId, position: Position) -> None:
        """Continue reading at `position`, which a head has given."""
        followed = self.journals.get(journal)
        if followed is None:
            return
        followed.reader.seek(position)
        followed.acknowledged = position
        followed.started = True
        followed.done = followed.gone = False

    def alive(self) -> list[JournalId]:
        """The journals whose writers are alive: the kernel says so, or the heartbeat is recent.

        The heartbeat counts where the kernel cannot tell: for writers on another host or in another
        container, in a shared directory.
        """
        recent = self._clock.wall_ns() - HEARTBEAT_SECONDS * 1e9
        return [
            followed.origin.journal
            for followed in list(self.journals.values())
            if not self._is_dead(followed)
            and (followed.known_alive or followed.reader.heartbeat_ns > recent)
        ]

    def gone(self) -> list[JournalId]:
        """The journals whose writers are dead and that were read to their end.  Without those of a
        host whose agent still reports: it can say how they ended."""
        journals = list(self.journals.values())
        heard = {f.origin.host for f in journals if f.origin.role == "agent" and not f.done}
        for followed in journals:
            followed.gone = followed.gone or followed.done and followed.origin.host not in heard
        return [followed.origin.journal for followed in journals if followed.gone]

    def live(self) -> list[Origin]:
        """The processes that are not known to be dead."""
        return [f.origin for f in list(self.journals.values()) if not self._is_dead(f)]

    def _is_dead(self, followed: Followed) -> bool:
        """Whether the writer is dead.  Asks the kernel at most once a second.

        A process that we cannot check (on another host, in a shared directory) is dead only if an
        agent saw it end.  A torn tail of such a journal stays unread, which costs nothing.
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


def _words(error: Exception) -> str:
    # A folder's name may hold any character, and this text goes to a terminal.
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(error).strip()[:500])
    return text if isinstance(error, SegmentError | OSError) else f"{type(error).__name__}: {text}"
