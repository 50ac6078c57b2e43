"""Writes each session that ends to a file NAME.json in a directory of the user's choice.

The store has the session; the file is a copy beside the user's work.  A thread of its own writes
the files, whole or not at all.  It first waits a little for what clients still hold.  A file that
lacks some of it says so, and is written again when the rest has come: also by the next head, since
how each file stands is recorded.  A session that is resumed and stopped again replaces its file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.exports.session import Absent
from runwatch.files import read_followed, written
from runwatch.head.state.gathering import Gathering, Missing
from runwatch.head.state.sessions import Sessions
from runwatch.record import Batch
from runwatch.views.sessions import Session

GATHER_SECONDS: Final = 10.0
"""How long a file waits for what clients hold."""
TICK_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 2.0
"""How often to look whether the rest of a file has come."""
QUIET_SECONDS: Final = 5.0
"""After late records of a client that seemed to hold none, more may follow."""
AGAIN_SECONDS: Final = 15.0
"""How long until a file is written again while somebody is still missing, or after an error."""
KEPT_DAYS: Final = 7
MOST_OPEN: Final = 20
"""Files that are looked after; of more, the newest sessions'."""
HEADER_BYTES: Final = 4096
logger = logging.getLogger("runwatch.head")

Pieces = Callable[[Session, Sequence[Absent], bool], Iterator[bytes]]
"""The text of a session, given who is missing, and whether it was written before."""


@dataclass(slots=True)
class _Pending:
    """A file that is not complete."""

    session: Session
    until_ns: int
    """When to write it at the latest (monotonic); when it was written, not before this."""
    was_written: bool = False
    missing: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


class SessionFiles:
    def __init__(
        self,
        folder: Path,
        sessions: Sessions,
        gathering: Gathering,
        pieces: Pieces,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self.folder = folder
        self._sessions = sessions
        self._gathering = gathering
        self._pieces = pieces
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, _Pending] = {}
        self._stopped: dict[str, _Pending] = {}
        """Those of this head, also when they are complete."""
        self._late: list[tuple[str, int, int]] = []
        self._watched_ns = 0
        """Records before this time may belong into a file that is written."""
        self._news = threading.Event()
        self._closing = False
        self._looked_ns = 0
        self._thread = threading.Thread(target=self._run, name="runwatch-files", daemon=True)

    def start(self) -> None:
        """Begins to write.  What the last head left to be done comes first."""
        self._thread.start()

    def stopped(self, session: Session) -> None:
        until_ns = self._clock.mono_ns() + int(GATHER_SECONDS * 1e9)
        with self._lock:
            self._open[session.id] = self._stopped[session.id] = _Pending(session, until_ns)
        self._news.set()

    def is_written(self, session: Session) -> bool:
        file = self._stopped.get(session.id)
        return file is not None and file.done.is_set()

    def wait(self, session: Session, seconds: float) -> bool:
        """Waits for the session's file.  Returns whether the file is there."""
        file = self._stopped.get(session.id)
        return file is not None and file.done.wait(seconds)

    def waiting(self) -> list[Session]:
        """The sessions whose files wait for what clients hold."""
        with self._lock:
            return [file.session for file in self._open.values() if not file.was_written]

    def missing(self, session: Session) -> list[str]:
        """Whose records were missing when its file was written last."""
        file = self._stopped.get(session.id)
        return [] if file is None else [name for name in file.missing if name]

    def path(self, session: Session) -> Path:
        folder = Path(session.saved.folder) if session.saved is not None else self.folder
        return folder / session.file

    def stored(self, batches: Sequence[Batch]) -> None:
        """The writer's thread calls it with what the store has now."""
        for batch in batches:
            if batch.origin.role == "agent" and len(batch.points):
                times = np.frombuffer(batch.points.time_ns, np.int64)
                first, last = int(times.min()), int(times.max())
                if first < self._watched_ns:
                    with self._lock:  # the thread looks soon: there may be thousands of them
                        self._late.append((batch.origin.host, first, last))

    def close(self) -> None:
        """Writes the files that wait, then stops."""
        self._closing = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        self._take_up()
        while True:
            closing = self._closing
            self._news.clear()
            try:
                self._round(closing)
            except RunwatchError as error:
                logger.warning("files of sessions: %s", error)
            if closing:
                return
            self._news.wait(self._pause())

    def _pause(self) -> float | None:
        with self._lock:
            written = [file.was_written for file in self._open.values()]
        if not all(written):
            return TICK_SECONDS
        return LOOK_SECONDS if self._watched_ns else None

    def _take_up(self) -> None:
        """What the last head left to be done."""
        try:
            sessions = self._sessions.all()
        except RunwatchError as error:
            logger.error("sessions cannot be read: %s", error)
            return
        recent_ns = self._clock.wall_ns() - KEPT_DAYS * 86_400 * 10**9
        now_ns = self._clock.mono_ns()
        for session in sessions:
            if session.saved is None or session.end_ns is None or session.end_ns < recent_ns:
                continue
            self._watched_ns = max(self._watched_ns, session.end_ns)
            if session.saved.state != "complete":
                was_written = session.saved.state == "partial"
                missing = list(session.saved.missing)
                until_ns = now_ns if was_written else now_ns + int(GATHER_SECONDS * 1e9)
                with self._lock:
                    pending = _Pending(session, until_ns, was_written, missing)
                    self._open.setdefault(session.id, pending)  # it may just have been stopped

    def _round(self, closing: bool) -> None:
        with self._lock:
            late, self._late = self._late, []
            for id in list(self._open)[:-MOST_OPEN]:
                if self._open[id].was_written:
                    del self._open[id]
            waiting = list(self._open.values())
        if late:
            self._reopen(late)
        now_ns = self._clock.mono_ns()
        looks = closing or now_ns - self._looked_ns >= LOOK_SECONDS * 1e9
        self._looked_ns = now_ns if looks else self._looked_ns
        for file in waiting:
            session = self._sessions.find(file.session.id)
            if session.is_active:
                self._forget(file)
            elif not file.was_written or looks:
                self._mind(file, session, closing)

    def _mind(self, file: _Pending, session: Session, closing: bool) -> None:
        missing = self._gathering.missing(session)
        names, now_ns = [each.absent.id for each in missing], self._clock.mono_ns()
        is_time = now_ns >= file.until_ns
        if file.was_written:
            due = not names or set(names) < set(file.missing)
            if due and is_time and self._is_ours(session):
                self._write(file, session, missing, later=not _is_owed(session))
        elif closing or is_time or all(each.is_lost for each in missing):
            self._write(file, session, missing, later=False)
        if missing and not closing:
            self._gathering.ask(session, missing)

    def _write(
        self, file: _Pending, session: Session, missing: Sequence[Missing], *, later: bool
    ) -> None:
        path, absent = self.path(session), [each.absent for each in missing]
        names = [each.id for each in absent]
        begun_ns = self._clock.mono_ns()
        try:
            write_whole(path, self._pieces(session, absent, later))
        except (OSError, RunwatchError) as error:
            logger.error("cannot save session %r: %s", session.name, error)
            file.until_ns = self._clock.mono_ns() + int(AGAIN_SECONDS * 1e9)
            file.was_written = True
            file.missing = [*names, ""]  # more than nobody: it is tried again
            return
        took_ns = self._clock.mono_ns() - begun_ns
        file.was_written, file.missing = True, names
        file.until_ns = begun_ns + max(int(AGAIN_SECONDS * 1e9), 10 * took_ns)
        self._watched_ns = max(self._watched_ns, session.end_ns or 0)
        self._note(session, names, later)
        file.done.set()
        if names:
            who = ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
            logger.warning("session %r is saved to %s without all of %s", session.name, path, who)
        else:
            self._forget(file)
            how = "complete now and saved" if later else "saved"
            logger.info("session %r is %s to %s", session.name, how, path)

    def _note(self, session: Session, missing: Sequence[str], later: bool) -> None:
        try:
            self._sessions.saved(session, "partial" if missing else "complete", missing, later)
        except RunwatchError as error:
            logger.warning("how the file of session %r stands: %s", session.name, error)

    def _forget(self, file: _Pending) -> None:
        with self._lock:
            self._open.pop(file.session.id, None)

    def _reopen(self, late: Sequence[tuple[str, int, int]]) -> None:
        """Records have come that belong into files which are written."""
        until_ns = self._clock.mono_ns() + int(QUIET_SECONDS * 1e9)
        for session in self._sessions.all():
            saved = session.saved
            if saved is None or saved.state == "due":
                continue
            hosts = sorted({host for host, *span in late if _is_in(session, host, *span)})
            if not hosts:
                continue
            with self._lock:
                file = self._open.setdefault(session.id, _Pending(session, until_ns, True))
            file.until_ns = max(file.until_ns, until_ns)
            if saved.state == "complete":
                file.missing = hosts
                self._sessions.saved(session, "partial", hosts, saved.later)

    def _is_ours(self, session: Session) -> bool:
        """Whether the file there is this session's: another of the same name may have replaced it,
        or the user has put something else there."""
        same = [s for s in self._sessions.all() if s.file == session.file and s.id != session.id]
        if any(other.start_ns > session.start_ns for other in same):
            return False
        if _is_owed(session):
            return True  # what is there now is from before
        try:
            header = read_followed(self.path(session), HEADER_BYTES)
        except FileNotFoundError:
            return True
        except OSError as error:
            logger.error("cannot look at %s: %s", self.path(session), error)
            return False
        return f'"session_id":"{session.id}"'.encode() in header


def _is_owed(session: Session) -> bool:
    """Whether its file was never written: the disk may have been full."""
    return session.saved is not None and session.saved.state == "due"


def _is_in(session: Session, host: str, first_ns: int, last_ns: int) -> bool:
    ahead_ns = session.clocks.get(host, 0)
    first_ns, last_ns = first_ns - ahead_ns, last_ns - ahead_ns
    return any(
        stretch.end_ns is not None and first_ns < stretch.end_ns and last_ns >= stretch.start_ns
        for stretch in session.stretches
    )


def write_whole(path: Path, pieces: Iterator[bytes]) -> None:
    with written(path) as file:
        for piece in pieces:
            file.write(piece)
