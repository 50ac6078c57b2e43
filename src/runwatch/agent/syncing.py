"""Puts journals on the disk every few seconds, so that they survive a power loss.

The system by itself writes them half a minute later.  The agent syncs, not the program: training
never waits for a disk here.  A thread does it, one journal at a time.  The longer a round takes,
the longer the pause after it: a busy disk has more important data to write.  A disk that hangs
holds up only this thread.
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
"""The pause after a round is at least this many times as long as the round …"""
LONGEST_PAUSE_SECONDS: Final = 300.0
"""… and at most this long."""
logger = logging.getLogger("runwatch.agent")


class DiskSync:
    """`look_at` says which journals are being written."""

    def __init__(
        self, root: Path, *, period_seconds: float = SYNC_SECONDS, clock: Clock = system_clock
    ) -> None:
        self._root = root
        self._period = period_seconds
        self._clock = clock
        self._written: frozenset[JournalId] = frozenset()
        self._reached: dict[JournalId, int] = {}
        """Journal -> the last segment that was synced."""
        self._last_warning = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look_at(self, journals: Collection[JournalId]) -> None:
        self._written = frozenset(journals)

    def start(self) -> None:
        # On a network file system the writer syncs: until then nobody else sees the data.
        if self._period > 0 and not is_network_file_system(self._root):
            self._thread = threading.Thread(target=self._run, name="runwatch-sync", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Waits one second at most: the disk may hang."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        pause = self._period / 2  # sooner than usual: a run may just have begun
        while not self._stop.wait(pause):
            begun_ns = self._clock.mono_ns()
            self.round()
            took = (self._clock.mono_ns() - begun_ns) / 1e9
            pause = min(max(self._period, SHARE * took), LONGEST_PAUSE_SECONDS)

    def round(self) -> None:
        """Sync every journal that is written, and once more each that no longer is."""
        written = self._written
        new = written - self._reached.keys()
        for journal in sorted(written | self._reached.keys()):
            try:
                with journal_folder(self._root / "journals" / journal) as folder:
                    self._reached[journal] = _sync(folder, self._reached.get(journal, -1))
            except FileNotFoundError:
                self._reached.pop(journal, None)  # it was sent and deleted
            except OSError as error:
                self._warn(f"journal {journal} may not survive a power loss: {error}")
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
            self._warn(f"new journals may not survive a power loss: {error}")

    def _warn(self, problem: str) -> None:
        if problem != self._last_warning:
            self._last_warning = problem
            logger.warning("%s", problem)


def _sync(folder: Folder, reached: int) -> int:
    """Sync the segments from `reached` on; returns the last one."""
    indexes = [index for index in indexes_among(folder.names()) if index >= reached]
    for index in indexes:
        try:
            fd = folder.open(segment_name(index))
        except FileNotFoundError:
            continue  # its writer has just dropped it
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
    last = max(indexes, default=reached)
    if last > reached:
        os.fsync(folder.fd)
    return last
