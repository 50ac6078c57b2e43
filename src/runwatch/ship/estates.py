"""Journals of hosts that are gone, and who sends them.

A pod comes back on its volume with another name, a node is replaced: what the old one had not sent
is still there, and nobody's any more.  The agent of another host takes it over, if it is sure
enough that nobody else is at it: no agent holds that host's lock, and the writer is dead (the
system says so, or an agent saw it end), or nothing of that host has changed for a while, as we saw
ourselves, whatever its clock says.  Of several agents that may, one does: whoever has the heir's
lock.  Should the host come back all the same, its own agent goes on where the head says; nothing is
doubled, since the head knows how far it has each journal.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import SegmentError
from runwatch.files import shelf
from runwatch.journal.agents import FOLDER, heir_name, hold, is_held, lock_name
from runwatch.journal.file_system import is_only_ours
from runwatch.journal.liveness import boot_id, has_ended, is_alive
from runwatch.journal.reader import open_segment, segments_in
from runwatch.journal.segment import HEADER_LENGTH, Header, segment_name
from runwatch.record import JournalId, Origin

STILL_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 5.0
HOSTS_AT_ONCE: Final = 8
"""A shared directory may hold those of thousands: each agent looks at a few at a time."""
MOST_JOURNALS: Final = 1_000
"""Of one host at a time; the others have their turn when these are taken."""
logger = logging.getLogger("runwatch.ship")

Pulse = tuple[int, int]
"""The last segment of a journal, and how often its heart has beaten there."""


@dataclass(slots=True)
class Estate:
    """What one other host has left here, or still writes."""

    journals: dict[JournalId, Origin] = field(default_factory=dict)
    pulses: Mapping[JournalId, Pulse] = field(default_factory=dict)
    still_ns: int | None = None
    """Since when nothing of it has changed, monotonic; None: not looked at, or served."""
    since_ns: int = 0
    """Since when it has no agent, as far as we know; wall clock."""
    beats: bool = False
    """Something has changed between our last two looks."""
    has_heir: bool = False
    """Another agent sends what it has left."""
    taken: set[JournalId] = field(default_factory=set)
    lock: int | None = None


@dataclass(frozen=True, slots=True)
class Unsent:
    """A journal of another host that nobody sends at the moment, and why we do not."""

    journal: JournalId
    why: str
    since_ns: int


class Estates:
    """`meet` each journal of another host; `look` now and then says which to send and which not
    any more."""

    def __init__(
        self,
        root: Path,
        *,
        still_seconds: float = STILL_SECONDS,
        clock: Clock = system_clock,
    ) -> None:
        self.unsent: tuple[Unsent, ...] = ()
        """Replaced as a whole: any thread may ask."""
        self._root = root
        self._still_ns = int(still_seconds * 1e9)
        self._look_ns = int(min(LOOK_SECONDS, still_seconds / 4) * 1e9)
        self._clock = clock
        self._estates: dict[str, Estate] = {}
        self._next_ns = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something may soon be ours to send."""
        return any(
            estate.still_ns is not None
            and not (estate.beats or estate.has_heir)
            and len(estate.journals) > len(estate.taken)
            for estate in list(self._estates.values())
        )

    def meet(self, origin: Origin) -> None:
        self._estates.setdefault(origin.host, Estate()).journals[origin.journal] = origin

    def forget(self, names: Collection[str]) -> None:
        """All that are not among these are gone."""
        for host, estate in list(self._estates.items()):
            for journal in estate.journals.keys() - names:
                del estate.journals[journal]
                estate.taken.discard(journal)
            if not estate.journals:
                self._release(estate)
                del self._estates[host]

    def look(self) -> Iterator[tuple[Origin, bool]]:
        """Journals that are ours to send from now on (True), and not any more (False)."""
        now = self._clock.mono_ns()
        if not self._estates or now < self._next_ns:
            return
        self._next_ns = now + self._look_ns
        for host in list(self._estates)[:HOSTS_AT_ONCE]:
            estate = self._estates[host] = self._estates.pop(host)  # the others come first now
            if is_held(self._root, lock_name(host)) is False:
                yield from self._take(host, estate, now)
            else:
                yield from self._give_back(host, estate)
        self._tell()

    def surely_dead(self, origin: Origin) -> bool:
        """Whether its writer writes no more, by the word of who must know."""
        directory = self._root / "journals" / origin.journal
        if has_ended(directory):
            return True
        if origin.boot and origin.boot == boot_id():
            return is_alive(origin, host=origin.host) is False
        return bool(origin.boot and boot_id()) and is_only_ours(directory)

    def close(self) -> None:
        for estate in self._estates.values():
            self._release(estate)
            estate.taken.clear()

    # ── one host ──────────────────────────────────────────────────────────────────────────────

    def _take(self, host: str, estate: Estate, now: int) -> Iterator[tuple[Origin, bool]]:
        rest = (each for each in estate.journals.items() if each[0] not in estate.taken)
        left = dict(islice(rest, MOST_JOURNALS))
        pulses = {name: self._pulse(name) for name in left}
        estate.beats = any(estate.pulses.get(n, pulse) != pulse for n, pulse in pulses.items())
        if estate.still_ns is None:
            estate.still_ns, estate.since_ns = now, self._clock.wall_ns()
        elif estate.beats or pulses.keys() - estate.pulses.keys():
            estate.still_ns = now
        estate.pulses = pulses
        is_still = now - estate.still_ns >= self._still_ns
        ready = [o for o in left.values() if is_still or self.surely_dead(o)]
        if not ready or not self._lock(host, estate):
            return
        logger.warning(
            "%d journals of host %a, which is gone, are sent from here", len(ready), host
        )
        for origin in ready:
            estate.taken.add(origin.journal)
            yield origin, True

    def _give_back(self, host: str, estate: Estate) -> Iterator[tuple[Origin, bool]]:
        estate.still_ns, estate.has_heir = None, False
        taken, estate.taken = estate.taken, set()
        self._release(estate)
        if taken:
            logger.warning("host %a has an agent of its own again, which sends what is its", host)
        for journal in taken:
            yield estate.journals[journal], False

    def _pulse(self, journal: JournalId) -> Pulse:
        directory = self._root / "journals" / journal
        try:
            index = segments_in(directory)[-1]
            path = directory / segment_name(index)
            with open(open_segment(path), "rb") as file:
                return index, Header.unpack(file.read(HEADER_LENGTH), path).heartbeat_ns
        except (OSError, SegmentError, IndexError):
            return -1, 0

    def _tell(self) -> None:
        seconds = self._still_ns / 1e9
        self.unsent = tuple(
            Unsent(
                journal,
                f"it is of host {host}, which has no agent: it is sent from here when nothing of "
                f"that host has changed for {seconds:g} s",
                estate.since_ns,
            )
            for host, estate in self._estates.items()
            if estate.still_ns is not None and not estate.has_heir
            for journal in sorted(estate.journals.keys() - estate.taken)
        )

    # ── the heir's lock ───────────────────────────────────────────────────────────────────────

    def _lock(self, host: str, estate: Estate) -> bool:
        if estate.lock is not None:
            return True
        try:
            with shelf(self._root, FOLDER, make=True) as folder:
                fd = folder.keep(heir_name(host))
        except OSError as error:
            logger.warning("what host %a has left stays: %s", host, error)
            return False
        estate.has_heir = not hold(fd)
        if estate.has_heir:
            os.close(fd)
            return False
        estate.lock = fd
        return True

    def _release(self, estate: Estate) -> None:
        if estate.lock is not None:
            os.close(estate.lock)
            estate.lock = None
