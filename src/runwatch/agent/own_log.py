"""Keeps the agent's own log short.  The process that started the agent opened the log for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runwatch.files import shelf

MOST_BYTES: Final = 16 << 20
KEPT_BYTES: Final = 1 << 20
_STDERR: Final = 2


def shorten(root: Path, *, fd: int = _STDERR, most_bytes: int = MOST_BYTES) -> bool:
    """Keep only the end of a log that is too long.  Returns whether it was too long.

    Only a log in the agent's own folder: a log elsewhere belongs to the person who sent it there.
    """
    try:
        mine = os.fstat(fd)
        if mine.st_size <= most_bytes:
            return False
        with shelf(root, "agent") as folder:
            names = (name for name in folder.names() if name.endswith(".log"))
            logs = [name for name in names if os.path.samestat(folder.stat(name), mine)]
            if not logs:
                return False
            with open(folder.open(logs[0], owners=folder.ours()), "rb") as file:
                file.seek(-min(KEPT_BYTES, most_bytes // 2), os.SEEK_END)
                file.readline()
                end = file.read()
        os.ftruncate(fd, 0)
        os.write(fd, end)
    except OSError:
        return False
    return True
