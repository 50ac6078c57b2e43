"""Files in `<root>/agent` through which a node's agent and the programs that need one communicate.

The process that holds the lock is the agent (`agent/lock.py` takes the lock); programs check here.
Other users may write in this folder too: their files are ignored, and nobody waits for their locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from runwatch.files import Folder, Refused, safe_name, shelf

FOLDER: Final = "agent"
_LONGEST: Final = 100
_TRIES: Final = 3
_TRY_SECONDS: Final = 0.02


def lock_name(host: str) -> str:
    return f"{safe_name(host)}.lock"


def heir_name(host: str) -> str:
    """The holder of this lock sends the journals of a host that is gone (`ship/estates.py`)."""
    return f"{safe_name(host)}.heir"


def hold(fd: int) -> bool:
    """Take the lock until the descriptor is closed.  False if another process holds it.

    A process that only checks the lock shares it for a moment.  So this tries a few times.
    """
    for attempt in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt + 1 < _TRIES:
                time.sleep(_TRY_SECONDS)
    return False


def is_held(root: Path, name: str) -> bool | None:
    """Whether a process holds this lock; None if we cannot tell.

    Checking shares the lock for a moment, and leaves no trace in the file.  A file that another
    user put in its place is not the lock of this user's agent.
    """
    try:
        with shelf(root, FOLDER) as folder:
            fd = folder.open(name, owners=_owners(folder, name))
    except (FileNotFoundError, Refused):
        return False
    except OSError:
        return None
    return is_locked(fd)


def is_locked(fd: int) -> bool | None:
    """Whether a process holds the lock.  Closes the descriptor, and with it our share."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def came_since(root: Path, host: str, wall_ns: int) -> bool:
    """Whether an agent has taken the lock since then, even if it has ended again."""
    try:
        with shelf(root, FOLDER) as folder:
            return folder.stat(lock_name(host)).st_mtime_ns >= wall_ns
    except OSError:
        return False


def ended_name(host: str) -> str:
    return f"{safe_name(host)}.ended"


def ended_ns(root: Path, host: str) -> int:
    """When all agents of this host were last ended on request, wall clock; 0 if never."""
    name = ended_name(host)
    try:
        with shelf(root, FOLDER) as folder:
            return int(folder.text(name, _LONGEST, owners=_owners(folder, name)))
    except (OSError, ValueError):
        return 0


def open_log(root: Path, name: str) -> int:
    """A descriptor to append to; /dev/null if another user's file blocks the name."""
    with shelf(root, FOLDER, make=True) as folder:
        try:
            fd = folder.keep(name)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def _owners(folder: Folder, name: str) -> frozenset[int]:
    """The users whose files we trust.  `folder.ours()` creates a file, so only if we must."""
    usual = frozenset((os.geteuid(),))
    with suppress(OSError):
        if folder.stat(name).st_uid not in usual:
            return folder.ours()
    return usual
