"""What a test may leave behind: nothing.  What was told to end may take a moment, though."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from runwatch.testing import until


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("runwatch")]


def open_files(place: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the listing's own
        if target.startswith(str(place)):
            found.append(target)
    return found


def nothing_is_left(place: Path | None = None) -> None:
    until(lambda: not our_threads(), 20, f"the end of {our_threads()}")
    if place is not None:
        until(lambda: not open_files(place), 20, f"the closing of {open_files(place)}")
