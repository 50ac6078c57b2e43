"""The memory control group of a process, version 1 or 2: its limit, its use, its OOM kills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.journal.liveness import PROC

CGROUPS: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60  # version 1 writes a number close to 2^63 for "no limit"


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    directory: Path
    mount: Path
    """Where the hierarchy begins: a limit may be set anywhere between here and `directory`."""
    version: int

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

    def _way_up(self) -> list[Path]:
        folders = [self.directory, *self.directory.parents]
        return [f for f in folders if f == self.mount or self.mount in f.parents]


def memory_cgroup(
    pid: int | str = "self", *, proc: Path = PROC, cgroups: Path = CGROUPS
) -> MemoryCgroup | None:
    """None where there is no memory controller, or no such process."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _existing(cgroups / "memory", path, 1, "memory.usage_in_bytes")
        if number == "0" and len(lines) == 1:
            return _existing(cgroups, path, 2, "memory.events")
    return None


def _existing(mount: Path, path: str, version: int, probe: str) -> MemoryCgroup | None:
    # In a container the path may be the host's; our group is then the root of the mount.
    for directory in (mount / path.lstrip("/"), mount):
        if (directory / probe).exists():
            return MemoryCgroup(directory, mount, version)
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
