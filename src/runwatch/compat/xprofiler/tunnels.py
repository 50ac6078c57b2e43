"""Tunnels that go on behind the command: one process for each instance, written down in a file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch.compat.commands import start_detached
from runwatch.compat.xprofiler.backend import word
from runwatch.errors import RunwatchError
from runwatch.journal.liveness import start_ticks

READY: Final = b"Forwarding from"
"""What a tunnel prints when it is open: kubectl's words."""
_LOOK_SECONDS: Final = 0.05


class Tunnels:
    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self, name: str, words: Sequence[str], seconds: float) -> None:
        """Another one to the same instance ends.  Raises RunwatchError if it does not open."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.close(name)
        log = self._note(name).with_suffix(".forward.log")
        with log.open("wb") as file:
            forward = start_detached(words, file)
        deadline = time.monotonic() + seconds
        try:
            while READY not in (output := log.read_bytes()):
                if forward.poll() is not None or time.monotonic() > deadline:
                    raise RunwatchError(f"no tunnel: {output.decode(errors='replace').strip()}")
                time.sleep(_LOOK_SECONDS)
            self._note(name).write_text(f"{forward.pid} {start_ticks(forward.pid)}")
        except BaseException:  # also Ctrl-C: no tunnel that nobody knows of
            forward.kill()
            forward.wait()
            log.unlink(missing_ok=True)
            raise

    def close(self, name: str) -> bool:
        """End the tunnel that was left running, if it is still that process."""
        note = self._note(name)
        note.with_suffix(".forward.log").unlink(missing_ok=True)
        try:
            pid, ticks = map(int, note.read_text().split())
        except (OSError, ValueError):
            return False
        note.unlink(missing_ok=True)
        if start_ticks(pid) != ticks:
            return False
        os.kill(pid, signal.SIGTERM)
        return True

    def _note(self, name: str) -> Path:
        return self._home / f"{word(name, 'name')}.forward"
