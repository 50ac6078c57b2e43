"""Sessions with their clients, frame counts, exports and files."""

from __future__ import annotations

import logging
from pathlib import Path

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.exports.session import SessionExport
from runwatch.head.state.clients import Clients
from runwatch.head.state.frame_counts import FrameCounts
from runwatch.head.state.session_files import SessionFiles
from runwatch.head.state.sessions import Sessions
from runwatch.views.sessions import Session

logger = logging.getLogger("runwatch.head")


class SessionRoom:
    """With `folder`, sessions end with the head, and each is written there when it ends."""

    def __init__(
        self,
        sessions: Sessions,
        clients: Clients,
        *,
        folder: Path | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.sessions = sessions
        self.clients = clients
        self.clock = clock
        self.counts = FrameCounts(sessions.store, clients.fleet, clock=clock)
        self.files = None
        if folder is not None:
            self.files = SessionFiles(folder, lambda session: self.export(session).json())
            sessions.on_stopped = self.files.stopped

    def export(self, session: Session, *, compat: bool = False) -> SessionExport:
        return SessionExport(
            self.sessions.store,
            self.clients.fleet(),
            session,
            now_ns=self.clock.wall_ns(),
            compat=compat,
        )

    def close(self) -> None:
        if self.files is None:
            return
        try:
            self.sessions.stop(why="the head ended")
        except RunwatchError as error:
            logger.error("sessions stay open: %s", error)
        self.files.close()
