"""Sessions with their clients, frame counts, exports and files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.exports.session import Absent, SessionExport
from runwatch.head.state.clients import Clients
from runwatch.head.state.frame_counts import FrameCounts
from runwatch.head.state.gathering import Gathering
from runwatch.head.state.session_files import GATHER_SECONDS, SessionFiles
from runwatch.head.state.sessions import Sessions
from runwatch.record import Batch
from runwatch.views.sessions import Session

POLL_SECONDS: Final = 0.1
WRITING_SECONDS: Final = 5.0
"""How long who stops a session also waits for its file to be written."""
LAST_SECONDS: Final = 3.0
"""How long a head that ends waits for what clients hold."""
logger = logging.getLogger("runwatch.head")


class SessionRoom:
    """With `folder`, sessions end with the head, and each is written there when it ends."""

    def __init__(
        self,
        sessions: Sessions,
        clients: Clients,
        gathering: Gathering | None = None,
        *,
        folder: Path | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.sessions = sessions
        self.clients = clients
        self.clock = clock
        self.counts = FrameCounts(sessions.store, clients.fleet, clock=clock)
        self.gathering = gathering or Gathering(clients, clock=clock)
        self.is_served = False
        """Whether clients can send: else nobody waits for them."""
        self.files = None
        if folder is not None:
            sessions.folder = folder
            self.files = SessionFiles(folder, sessions, self.gathering, self._text, clock=clock)
            sessions.on_stopped = self.files.stopped

    def export(self, session: Session, *, compat: bool = False) -> SessionExport:
        missing = [each.absent for each in self.gathering.missing(session)]
        later = session.saved is not None and session.saved.later
        return self._export(session, missing, compat=compat, later=later)

    def _text(self, session: Session, missing: Sequence[Absent], later: bool) -> Iterator[bytes]:
        return self._export(session, missing, compat=False, later=later).json()

    def _export(
        self, session: Session, missing: Sequence[Absent], *, compat: bool, later: bool
    ) -> SessionExport:
        return SessionExport(
            self.sessions.store,
            self.clients.fleet(),
            session,
            now_ns=self.clock.wall_ns(),
            compat=compat,
            missing=missing,
            later=later,
        )

    # ── the end of sessions ───────────────────────────────────────────────────────────────────

    def missing(self, session: Session) -> list[str]:
        """The clients of which records of the session are not all here."""
        return [each.absent.id for each in self.gathering.missing(session)]

    def awaited(self) -> list[str]:
        """The clients for which stopped sessions wait now."""
        files = self.files
        waiting = [] if files is None else files.waiting()
        return sorted({name for session in waiting for name in self.missing(session)})

    async def gathered(self, stopped: Sequence[Session]) -> dict[str, list[str]]:
        """Waits until all records of these sessions are here, and their files are written; but not
        for ever.  Returns whose records are missing, by session."""
        deadline = self.clock.mono_ns() + int((GATHER_SECONDS + WRITING_SECONDS) * 1e9)
        is_settled = self._is_whole if self.files is None else self.files.is_written
        for session in stopped:
            while not await asyncio.to_thread(is_settled, session):
                if self.clock.mono_ns() >= deadline:
                    break
                await asyncio.sleep(POLL_SECONDS)
        return await asyncio.to_thread(lambda: {s.id: self._told(s) for s in stopped})

    def _told(self, session: Session) -> list[str]:
        is_written = self.files is not None and self.files.is_written(session)
        if self.files is not None and is_written:
            return self.files.missing(session)
        return self.missing(session)

    def _is_whole(self, session: Session) -> bool:
        """Of a session without a file: whether nobody is waited for."""
        missing = self.gathering.missing(session)
        if missing:
            self.gathering.ask(session, missing)
        ended_ns = session.end_ns or 0
        is_late = self.clock.wall_ns() - ended_ns > GATHER_SECONDS * 1e9
        return is_late or not self.is_served or all(each.is_lost for each in missing)

    def start(self) -> None:
        """Clients can send from now on."""
        self.is_served = True
        if self.files is not None:
            self.files.start()

    def stored(self, batches: Sequence[Batch]) -> None:
        if self.files is not None:
            self.files.stored(batches)

    def end(self) -> None:
        """The head ends, but clients can still send: the last records of open sessions come."""
        if self.files is None:
            return
        try:
            stopped = self.sessions.stop(why="the head ended")
        except RunwatchError as error:
            logger.error("sessions stay open: %s", error)
            return
        until_ns = self.clock.mono_ns() + int(LAST_SECONDS * 1e9)
        for session in stopped:
            self.files.wait(session, max(0.0, (until_ns - self.clock.mono_ns()) / 1e9))

    def close(self) -> None:
        if self.files is not None:
            self.end()
            self.files.close()
