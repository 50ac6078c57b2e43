"""Control groups of the memory controller: version 1, or 2 where it may be handed down.

A group is named after the process that made it: tests/reaper.py removes what that has left.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Final

from runwatch.agent.cgroup import CGROUPS, memory_cgroup
from runwatch.testing import until

PREFIX: Final = "runwatch-pods"
_numbers: Final = itertools.count()


class Group:
    """A control group, and how much memory what is in it may have (None: as much as there is)."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        above = _above()
        assert above is not None, "no memory controller: ask `why_not` first"
        mine, version = above
        self.folder = mine / f"{_mine()}{next(_numbers)}"
        self.folder.mkdir()
        if limit_bytes is not None:
            file = "memory.max" if version == 2 else "memory.limit_in_bytes"
            (self.folder / file).write_text(f"{limit_bytes}")
        self._kills = ("memory.events", "memory.oom_control")[version == 1]

    def oom_kills(self) -> int:
        words = (self.folder / self._kills).read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def close(self) -> None:
        until(lambda: _is_gone(self.folder), 30, f"{self.folder} to be empty")


def _is_gone(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a killed process is still being taken apart
    return True


def why_not() -> str:
    """Why no program can be given a limit here; "" if one can."""
    try:
        if _above() is None:
            return "no memory controller"
        Group().close()
    except OSError as error:
        return f"no memory group can be made: {error}"
    return ""


def _above() -> tuple[Path, int] | None:
    """The group below which ours are made, and its version."""
    mine = memory_cgroup()
    if mine is not None and mine.version == 1:
        return mine.directory, 1
    # Version 2 has no processes beside groups, but at the root: ours are made there.
    has_memory = "memory" in _words(CGROUPS / "cgroup.subtree_control")
    return (CGROUPS, 2) if has_memory else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def made() -> list[Path]:
    """All groups of tests that there are."""
    above = _above()
    return [] if above is None else list(above[0].glob(f"{PREFIX}-*"))


def is_mine(group: Path) -> bool:
    """Whether this process has made it."""
    return group.name.startswith(_mine())


def _mine() -> str:
    return f"{PREFIX}-{os.getpid()}-"
