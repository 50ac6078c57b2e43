"""Journals of hosts that are gone, and which agent sends them.

A pod comes back on its volume under another name, or a node is replaced.  Records that the old host
had not sent are still there, and no agent sends them.  The agent of another host takes them over
once it is sure enough that nobody else does.  No agent may hold that host's lock.  And either the
writer is dead (the kernel says so, or an agent saw it end), or nothing of that host has changed for
a while, by our own observation, whatever its clock says.  If several agents qualify, the one with
the heir's lock does it.  If the host comes back, its own agent continues where the head says.
Nothing is stored twice, since the head knows how far it has each journal.
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
"""A shared directory may hold journals of thousands of hosts: look at a few at a time."""
MOST_JOURNALS: Final = 1_000
"""Journals of one host taken at a time; the others follow later."""
logger = logging.getLogger("runwatch.ship")

Pulse = tuple[int, int]
"""A journal's last segment, and the heartbeat in that segment's header."""


@dataclass(slots=True)
class Estate:
    """The journals of one other host, which is gone or still writes."""

    journals: dict[JournalId, Origin] = field(default_factory=dict)
    pulses: Mapping[JournalId, Pulse] = field(default_factory=dict)
    still_ns: int | None = None
    """Since when nothing of it has changed, monotonic; None: not looked at, or it has an agent."""
    since_ns: int = 0
    """Since when it has no agent, as far as we know; wall clock."""
    beats: bool = False
    """Something changed between our last two looks."""
    has_heir: bool = False
    """Another agent sends its journals."""
    taken: set[JournalId] = field(default_factory=set)
    lock: int | None = None


@dataclass(frozen=True, slots=True)
class Unsent:
    """A journal of another host that no agent sends at the moment, and why we do not."""

    journal: JournalId
    why: str
    since_ns: int


class Estates:
    """Call `meet` for each journal of another host.  Call `look` now and then: it says which
    journals we start and stop sending."""

    def __init__(
        self,
        root: Path,
        *,
        still_seconds: float = STILL_SECONDS,
        clock: Clock = system_clock,
    ) -> None:
        self.unsent: tuple[Unsent, ...] = ()
        """Replaced as a whole, so that any thread may read it."""
        self._root = root
        self._still_ns = int(still_seconds * 1e9)
        self._look_ns = int(min(LOOK_SECONDS, still_seconds / 4) * 1e9)
        self._clock = clock
        self._estates: dict[str, Estate] = {}
        self._next_ns = 0

    @property
    def is_waiting(self) -> bool:
        """Whether we may soon have journals to send."""
        return any(
            estate.still_ns is not None
            and not (estate.beats or estate.has_heir)
            and len(estate.journals) > len(estate.taken)
            for estate in list(self._estates.values())
        )

    def meet(self, origin: Origin) -> None:
        self._estates.setdefault(origin.host, Estate()).journals[origin.journal] = origin

    def forget(self, names: Collection[str]) -> None:
        """Drop all journals that are not among `names`: they were removed."""
        for host, estate in list(self._estates.items()):
            for journal in estate.journals.keys() - names:
                del estate.journals[journal]
                estate.taken.discard(journal)
            if not estate.journals:
                self._release(estate)
                del self._estates[host]

    def look(self) -> Iterator[tuple[Origin, bool]]:
        """Journals that we send from now on (True), and those that we stop sending (False)."""
        now = self._clock.mono_ns()
        if not self._estates or now < self._next_ns:
            return
        self._next_ns = now + self._look_ns
        for host in list(self._estates)[:HOSTS_AT_ONCE]:
            estate = self._estates[host] = self._estates.pop(host)  # to the end: others come first
            if is_held(self._root, lock_name(host)) is False:
                yield from self._take(host, estate, now)
            else:
                yield from self._give_back(host, estate)
        self._tell()

    def surely_dead(self, origin: Origin) -> bool:
        """Whether the writer is dead by a reliable source: its agent or the kernel."""
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
        rest = (item for item in estate.journals.items() if item[0] not in estate.taken)
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
        logger.warning("host %a is gone: this agent now sends %d of its journals", host, len(ready))
        for origin in ready:
            estate.taken.add(origin.journal)
            yield origin, True

    def _give_back(self, host: str, estate: Estate) -> Iterator[tuple[Origin, bool]]:
        estate.still_ns, estate.has_heir = None, False
        taken, estate.taken = estate.taken, set()
        self._release(estate)
        if taken:
            logger.warning("host %a has its own agent again, which sends its journals", host)
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
                f"it belongs to host {host}, which has no agent; this agent sends it when nothing "
                f"of that host has changed for {seconds:g} s",
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
            logger.warning("cannot take over the journals of host %a: %s", host, error)
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
