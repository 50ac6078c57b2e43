"""One agent per node and user: the one that holds the lock file."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from runwatch.files import Folder, private, shelf
from runwatch.journal.agents import FOLDER, ended_name, ended_ns, hold, is_held, lock_name
from runwatch.journal.liveness import pid_namespace, this_host


class AgentLock:
    """`acquire` says whether we hold the lock.  The kernel releases it when we die, however we die.

    A file that another user put in the lock's place does not count as an agent of this user.
    """

    def __init__(self, root: Path, host: str) -> None:
        self.path = root / FOLDER / lock_name(host)
        self._fd: int | None = None

    def acquire(self) -> bool:
        """False when another agent holds the lock.  Raises OSError if the file cannot be opened."""
        private(self.path.parent.parent)
        with self._folder(make=True) as folder:
            fd = folder.keep(self.path.name)
        if not hold(fd):
            os.close(fd)
            return False
        holder = {"pid": os.getpid(), "pid_namespace": pid_namespace()}
        with suppress(OSError):  # the disk is full: the lock holds without a text
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(holder).encode(), 0)
        self._fd = fd
        return True

    def _folder(self, *, make: bool = False) -> Folder:
        return shelf(self.path.parent.parent, FOLDER, make=make)

    def is_held(self) -> bool:
        """Whether any agent holds the lock now."""
        return is_held(self.path.parent.parent, self.path.name) is True

    def holder(self) -> int | None:
        """The pid in the file: the holder's, while the lock is held.

        None for a holder in another container: here its pid is another process.
        """
        try:
            with self._folder() as folder:
                holder = json.loads(folder.text(self.path.name, owners=folder.ours()))
            number = int(holder["pid"])
            return number if holder.get("pid_namespace", 0) in (0, pid_namespace()) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def end_agents(root: Path, patience_seconds: float = 10.0) -> None:
    """Ask our agents of a directory on this host to end, and wait until they have ended.

    An agent that is just starting finds a note not to (`is_unwanted`).
    """
    names: list[str] = []
    with suppress(OSError), shelf(root, FOLDER, make=True) as folder:
        folder.write(ended_name(this_host()), str(time.time_ns()).encode())
        names = folder.names()
    for name in names:
        if not name.endswith(".lock") or name.startswith("."):
            continue
        lock = AgentLock(root, "")
        lock.path = root / FOLDER / name
        deadline = time.monotonic() + patience_seconds
        asked: int | None = None
        while lock.is_held() and time.monotonic() < deadline:
            holder = lock.holder()
            if holder is not None and holder != asked:
                asked = holder
                # A new holder may not have written its pid yet: then this is the last one's.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(holder, signal.SIGTERM)
            time.sleep(0.02)


def is_unwanted(root: Path, asked_ns: int) -> bool:
    """Whether `end_agents` was called after this agent was asked for.

    A call in the future does not count: then the clock was set back.
    """
    return asked_ns < ended_ns(root, this_host()) <= time.time_ns()
