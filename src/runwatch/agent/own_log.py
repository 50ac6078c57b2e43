"""The agent's own log, which whoever started it opened for it: it may not grow for ever."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runwatch.files import shelf

MOST_BYTES: Final = 16 << 20
KEPT_BYTES: Final = 1 << 20
_STDERR: Final = 2


def shorten(root: Path, *, fd: int = _STDERR, most_bytes: int = MOST_BYTES) -> bool:
    """Keep only the end of it when it has become too long; whether it had.

    Only a log that lies in our own folder: one that somebody sent elsewhere is theirs.
    """
    try:
        mine = os.fstat(fd)
        if mine.st_size <= most_bytes:
            return False
        with shelf(root, "agent") as folder:
            names = (name for name in folder.names() if name.endswith(".log"))
            found = [name for name in names if os.path.samestat(folder.stat(name), mine)]
            if not found:
                return False
            with open(folder.open(found[0], owners=folder.ours()), "rb") as file:
                file.seek(-min(KEPT_BYTES, most_bytes // 2), os.SEEK_END)
                file.readline()
                end = file.read()
        os.ftruncate(fd, 0)
        os.write(fd, end)
    except OSError:
        return False
    return True
