"""What a node's agent and the programs that need one tell each other, in `<root>/agent`.

Who holds the lock is the agent (`agent/lock.py` takes it); whoever needs one asks here.  Others may
write in this folder, too: what they lay there is no word of ours, and nobody waits for it.
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
    """Who holds this sends what a host that is gone has left (`ship/estates.py`)."""
    return f"{safe_name(host)}.heir"


def hold(fd: int) -> bool:
    """Take the lock, until the descriptor is closed; False if somebody has it.

    Who only asks whether it is held has a share in it for a moment: so it is tried again.
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
    """Whether somebody has this lock; None if that cannot be told.

    Who asks has a share in it for a moment, and does not say so in the file.  What somebody else
    put in its place, whoever holds it, is no agent of this user's.
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
    """Whether somebody has the lock; closes the descriptor, and with it our share."""
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
    """Whether an agent has taken the lock since then, be it gone again or not."""
    try:
        with shelf(root, FOLDER) as folder:
            return folder.stat(lock_name(host)).st_mtime_ns >= wall_ns
    except OSError:
        return False


def ended_name(host: str) -> str:
    return f"{safe_name(host)}.ended"


def ended_ns(root: Path, host: str) -> int:
    """When somebody last ended all agents of this host, wall clock; 0 if nobody did."""
    name = ended_name(host)
    try:
        with shelf(root, FOLDER) as folder:
            return int(folder.text(name, _LONGEST, owners=_owners(folder, name)))
    except (OSError, ValueError):
        return 0


def open_log(root: Path, name: str) -> int:
    """A descriptor to append to; /dev/null where somebody else keeps ours from being there."""
    with shelf(root, FOLDER, make=True) as folder:
        try:
            fd = folder.keep(name)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def _owners(folder: Folder, name: str) -> frozenset[int]:
    """To learn whom a file system makes the owner a file is made: not where there is no need."""
    usual = frozenset((os.geteuid(),))
    with suppress(OSError):
        if folder.stat(name).st_uid not in usual:
            return folder.ours()
    return usual
