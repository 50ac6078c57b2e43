"""The memory control group of a process, version 1 or 2: its limit, its use, its OOM kills.

A container sees its own group as the whole hierarchy.  An agent in one, as a DaemonSet runs it,
finds the groups of its node's pods where their own containers see them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.capture.process import as_its_user
from runwatch.journal.liveness import PROC

CGROUPS: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60  # version 1 writes a number close to 2^63 for "no limit"
_PROBE_1: Final = "memory.usage_in_bytes"
_PROBE_2: Final = "memory.events"


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    directory: Path
    mount: Path
    """Where the hierarchy begins: a limit may be set anywhere between here and `directory`."""
    version: int
    held: int | None = None
    """The descriptor that `directory` leads through, if it does; `close` closes it."""

    def limit_bytes(self) -> int | None:
        """The lowest limit of this group and those above it; None when none is set."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        limits = [_number(folder / name) for folder in self._way_up()]
        return min((n for n in limits if n is not None and n < _UNLIMITED), default=None)

    def used_bytes(self) -> int | None:
        """Memory that the kernel cannot take back at once: all but the inactive page cache."""
        names = ("memory.current", "inactive_file")
        if self.version == 1:
            names = ("memory.usage_in_bytes", "total_inactive_file")
        used = _number(self.directory / names[0])
        cached = _field(self.directory / "memory.stat", names[1])
        return None if used is None else max(0, used - (cached or 0))

    def oom_kills(self) -> int | None:
        """How many processes of the group the kernel has killed because memory ran out."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _field(self.directory / name, "oom_kill")

    def close(self) -> None:
        if self.held is not None:
            os.close(self.held)

    def _way_up(self) -> list[Path]:
        folders = [self.directory, *self.directory.parents]
        return [f for f in folders if f == self.mount or self.mount in f.parents]


def memory_cgroup(
    pid: int | str = "self", *, proc: Path = PROC, cgroups: Path = CGROUPS
) -> MemoryCgroup | None:
    """None where there is no memory controller, no such process, or its group is out of sight."""
    place = _place(pid, proc)
    if place is None:
        return None
    version, path = place
    mount, probe = (cgroups / "memory", _PROBE_1) if version == 1 else (cgroups, _PROBE_2)
    directory = mount / path.lstrip("/")
    if ".." not in directory.parts and (directory / probe).exists():
        return MemoryCgroup(directory, mount, version)
    # In a container the path may be the host's; what is mounted is then our own group.
    if place == _place("self", proc):
        return MemoryCgroup(mount, mount, version) if (mount / probe).exists() else None
    return _in_its_container(pid, mount, version, proc, probe)


def _place(pid: int | str, proc: Path) -> tuple[int, str] | None:
    """The version, and the path of the process's group."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return 1, path
        if number == "0" and len(lines) == 1:
            return 2, path
    return None


def _in_its_container(
    pid: int | str, mount: Path, version: int, proc: Path, probe: str
) -> MemoryCgroup | None:
    """Its container may show us anything there: only a group of this kernel that has the process
    counts."""
    place = f"{proc}/{pid}/root/sys/fs/cgroup" + ("/memory" if version == 1 else "")
    try:
        with as_its_user(int(pid), proc=proc):
            held = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    directory = Path(f"/proc/self/fd/{held}")
    with suppress(OSError):
        is_group = os.fstat(held).st_dev == mount.stat().st_dev and (directory / probe).exists()
        if is_group and str(pid) in (directory / "cgroup.procs").read_text().split():
            return MemoryCgroup(directory, directory, version, held)
    os.close(held)
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # else "max"


def _field(path: Path, name: str) -> int | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
