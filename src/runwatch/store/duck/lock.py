"""One process per store directory; a second one is told the pid of the first."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from runwatch.clock import Clock
from runwatch.errors import StoreBusy


class DirectoryLock:
    """An flock, which the kernel releases however the holder dies."""

    def __init__(self, directory: Path, *, clock: Clock) -> None:
        self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._file)
            os.close(self._file)
            raise StoreBusy(
                f"{directory} is in use by process {holder}; "
                "stop it, or give this one another directory"
            ) from None
        text = json.dumps({"pid": os.getpid(), "started_ns": clock.wall_ns()})
        with contextlib.suppress(OSError):  # on a full disk we still have the lock
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text.encode(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _holder(file: int) -> str:
    try:
        return str(json.loads(os.pread(file, 4096, 0))["pid"])
    except (ValueError, KeyError, TypeError):
        return "(unknown)"
