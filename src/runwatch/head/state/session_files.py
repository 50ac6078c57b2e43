"""Writes each session that ends to a file NAME.json in a directory of the user's choice.

The store has the session; the file is a copy beside the user's work.  A thread of its own writes
the files, whole or not at all.  A session that is resumed and stopped again replaces its file.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from runwatch.errors import RunwatchError
from runwatch.files import written
from runwatch.views.sessions import Session

SETTLE_SECONDS: Final = 1.0
"""How long to wait after a stop: the session's last samples are still on their way."""
logger = logging.getLogger("runwatch.head")


class SessionFiles:
    def __init__(self, folder: Path, pieces: Callable[[Session], Iterator[bytes]]) -> None:
        self.folder = folder
        self._pieces = pieces
        self._waiting: queue.Queue[tuple[Session, threading.Event] | None] = queue.Queue()
        self._written: dict[str, threading.Event] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-files", daemon=True)
        self._thread.start()

    def stopped(self, session: Session) -> None:
        done = self._written[session.id] = threading.Event()
        self._waiting.put((session, done))

    def wait(self, session: Session, seconds: float) -> bool:
        """Waits for the session's file.  Returns whether the file is there."""
        done = self._written.get(session.id)
        return done is not None and done.wait(seconds)

    def path(self, session: Session) -> Path:
        return self.folder / session.file

    def close(self) -> None:
        """Writes the files that wait, then stops."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            session, done = item
            self._closing.wait(SETTLE_SECONDS)
            try:
                write_whole(self.path(session), self._pieces(session))
                done.set()
                logger.info("session %r is saved to %s", session.name, self.path(session))
            except (OSError, RunwatchError) as error:
                logger.error("cannot save session %r: %s", session.name, error)


def write_whole(path: Path, pieces: Iterator[bytes]) -> None:
    with written(path) as file:
        for piece in pieces:
            file.write(piece)
