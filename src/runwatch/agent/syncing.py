"""What was recorded is on the disk a few seconds later, and so survives a power loss.

The system would write it in its own time, half a minute later.  The agent asks for it, not the
program: nobody who trains waits for a disk here.  A thread of its own asks, one journal at a time,
and the longer that takes, the less often: a disk that is busy has more important things to write,
and one that stands still holds up nobody else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.files import Folder, journal_folder, shelf
from runwatch.journal.file_system import is_network_file_system
from runwatch.journal.segment import indexes_among, segment_name
from runwatch.record import JournalId

SYNC_SECONDS: Final = 5.0
SHARE: Final = 20
"""A round is followed by a pause of at least so many times its length …"""
LONGEST_PAUSE_SECONDS: Final = 300.0
"""… and at most this."""
logger = logging.getLogger("runwatch.agent")


class DiskSync:
    """`look_at` says which journals are written at the moment."""

    def __init__(
        self, root: Path, *, period_seconds: float = SYNC_SECONDS, clock: Clock = system_clock
    ) -> None:
        self._root = root
        self._period = period_seconds
        self._clock = clock
        self._written: frozenset[JournalId] = frozenset()
        self._reached: dict[JournalId, int] = {}
        """The last segment of each that was on the disk, as far as it was written."""
        self._said = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look_at(self, journals: Collection[JournalId]) -> None:
        self._written = frozenset(journals)

    def start(self) -> None:
        # On a network file system who writes does it: others see nothing before.
        if self._period > 0 and not is_network_file_system(self._root):
            self._thread = threading.Thread(target=self._run, name="runwatch-sync", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """A disk that stands still is not waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        pause = self._period / 2  # a run that has just begun is not to vanish
        while not self._stop.wait(pause):
            begun_ns = self._clock.mono_ns()
            self.round()
            took = (self._clock.mono_ns() - begun_ns) / 1e9
            pause = min(max(self._period, SHARE * took), LONGEST_PAUSE_SECONDS)

    def round(self) -> None:
        """Those that are not written any more, too, once."""
        written = self._written
        new = written - self._reached.keys()
        for journal in sorted(written | self._reached.keys()):
            try:
                with journal_folder(self._root / "journals" / journal) as folder:
                    self._reached[journal] = _sync(folder, self._reached.get(journal, -1))
            except FileNotFoundError:
                self._reached.pop(journal, None)  # it is sent and gone
            except OSError as error:
                self._say(f"journal {journal} may not survive a power loss: {error}")
        for journal in self._reached.keys() - written:
            del self._reached[journal]
        if new:
            self._sync_names()

    def _sync_names(self) -> None:
        try:
            with Folder.at(self._root) as root, shelf(self._root, "journals") as journals:
                os.fsync(journals.fd)
                os.fsync(root.fd)
        except OSError as error:
            self._say(f"new journals may not survive a power loss: {error}")

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            logger.warning("%s", problem)


def _sync(folder: Folder, reached: int) -> int:
    """Put on the disk what came since; the last segment that is there now."""
    indexes = [index for index in indexes_among(folder.names()) if index >= reached]
    for index in indexes:
        try:
            fd = folder.open(segment_name(index))
        except FileNotFoundError:
            continue  # its writer has dropped it just now
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
    last = max(indexes, default=reached)
    if last > reached:
        os.fsync(folder.fd)
    return last
