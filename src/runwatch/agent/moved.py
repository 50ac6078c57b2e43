"""Sends records that had no room in our directory.

A process that finds the disk full records in a temporary folder (`journal/moved.py`).  We start an
agent for that folder, which sends to the same head.
"""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runwatch.agent.collectors.base import Due
from runwatch.agent.settings import AgentSettings
from runwatch.clock import Clock
from runwatch.journal.agents import is_held, lock_name, open_log
from runwatch.journal.moved import check_private, fallback_place, moved_from, note_wanted
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId

LOOK_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.agent")


def here_or_elsewhere(root: Path, make: Callable[[Path], JournalWriter]) -> JournalWriter:
    """Open the agent's journal; on a full disk, elsewhere, so that the agent can still serve."""
    try:
        return make(root)
    except OSError as error:
        place = fallback_place()
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or place == root:
            raise
        logger.warning("%s: the agent's own records go to %s", error, place)
    place.mkdir(mode=0o700, exist_ok=True)
    check_private(place)
    writer = make(place)
    note_wanted(writer.directory, root)
    return writer


class Neighbour:
    """Starts an agent for the temporary folder, once for the journals that are there."""

    def __init__(self, settings: AgentSettings, host: str, clock: Clock) -> None:
        self._settings = settings
        self._host = host
        self._due = Due(LOOK_SECONDS, clock)
        self._served: set[JournalId] = set()
        self._started: list[subprocess.Popen[bytes]] = []

    def look(self) -> None:
        if not self._due.is_due():
            return
        self._started = [each for each in self._started if each.poll() is None]
        place = fallback_place()
        if place == self._settings.root or not (moved := set(moved_from(self._settings.root))):
            return
        if moved <= self._served or is_held(place, lock_name(self._host)) is not False:
            return
        try:
            log = open_log(place, "moved.log")
            with open(log, "ab") as file:
                self._started.append(self._start(file.fileno()))
        except OSError as error:
            logger.warning("journals in %s are not sent, no agent can start: %s", place, error)
            return
        self._served |= moved
        logger.warning("%d journals were moved to %s: an agent sends them", len(moved), place)

    def _start(self, log: int) -> subprocess.Popen[bytes]:
        settings = self._settings
        command = [sys.executable, "-P", "-m", "runwatch.agent", "--dir", str(fallback_place())]
        if settings.head:
            command += ["--head", settings.head]
        if settings.token_file is not None:
            command += ["--token-file", str(settings.token_file)]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
