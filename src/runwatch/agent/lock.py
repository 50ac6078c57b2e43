"""One agent per node and user: whoever holds the lock file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from runwatch.journal.liveness import pid_namespace, this_host


class AgentLock:
    """`acquire` says whether we are the one; the kernel lets go when we die, however we die."""

    def __init__(self, root: Path, host: str) -> None:
        safe = "".join(c if c.isalnum() or c in "-." else "-" for c in host) or "host"
        self.path = root / "agent" / f"{safe.lstrip('.')[:100]}.lock"
        self._fd: int | None = None

    def acquire(self) -> bool:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        said = {"pid": os.getpid(), "pid_namespace": pid_namespace()}
        os.pwrite(fd, json.dumps(said).encode(), 0)
        self._fd = fd
        return True

    def is_held(self) -> bool:
        """By someone, now.  Who asks has it for a moment, and does not say so in the file."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def holder(self) -> int | None:
        """The pid that wrote the file last; it is the holder's while the lock is held.

        None for one of another container: its number would be somebody else's here.
        """
        try:
            said = json.loads(self.path.read_text())
            number = int(said["pid"])
            return number if said.get("pid_namespace", 0) in (0, pid_namespace()) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def end_agents(root: Path, patience_seconds: float = 10.0) -> None:
    """Ask the agents of a directory on this host to end, and wait until they have.

    One that was asked for and has not begun yet finds a note that it need not (`is_unwanted`).
    """
    with suppress(OSError):
        note = _note(root)
        note.parent.mkdir(mode=0o700, exist_ok=True)
        note.write_text(str(time.time_ns()))
    for path in (root / "agent").glob("*.lock"):
        lock = AgentLock(root, path.stem)
        deadline = time.monotonic() + patience_seconds
        asked: int | None = None
        while lock.is_held() and time.monotonic() < deadline:
            holder = lock.holder()
            if holder is not None and holder != asked:
                asked = holder
                # One that has the lock and has not said so yet: the file names the last one.
                with suppress(ProcessLookupError):
                    os.kill(holder, signal.SIGTERM)
            time.sleep(0.02)


def is_unwanted(root: Path, asked_ns: int) -> bool:
    """Whether all agents were ended after one was asked for."""
    try:
        ended_ns = int(_note(root).read_text())
    except (OSError, ValueError):
        return False
    return asked_ns < ended_ns <= time.time_ns()  # unless the clock was set back


def _note(root: Path) -> Path:
    return AgentLock(root, this_host()).path.with_suffix(".ended")
