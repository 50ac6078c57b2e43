"""What a test may leave behind: nothing.  What was told to end may take a moment, though."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from runwatch.capture.process import children
from runwatch.testing import until


@dataclass(frozen=True)
class Here:
    """What is there before a test, and may be there after it."""

    threads: frozenset[threading.Thread] = frozenset()
    processes: frozenset[int] = frozenset()

    @classmethod
    def now(cls) -> Here:
        return cls(frozenset(threading.enumerate()), frozenset(children(os.getpid())))


NOTHING = Here()


def our_threads(before: Here = NOTHING) -> list[str]:
    there = set(threading.enumerate()) - before.threads
    return sorted(thread.name for thread in there if thread.name.startswith("runwatch"))


def processes(before: Here) -> list[str]:
    """Without those of Python's own: multiprocessing starts them once, for all that come."""
    started = set(children(os.getpid())) - before.processes
    lines = [f"{pid} {_command(pid)}" for pid in sorted(started)]
    return [line for line in lines if "from multiprocessing" not in line]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "(gone)"


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


def nothing_is_left(place: Path | None = None, before: Here = NOTHING) -> None:
    until(lambda: not our_threads(before), what=f"the end of {our_threads(before)}")
    if before is not NOTHING:
        until(lambda: not processes(before), what=f"the end of {processes(before)}")
    if place is not None:
        until(lambda: not open_files(place), what=f"the closing of {open_files(place)}")
