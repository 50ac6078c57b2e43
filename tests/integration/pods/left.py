"""What playing pods might leave on the machine: processes, mounts, links, control groups."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

from runwatch.capture.process import children
from tests.integration.pods import memory, network


def left(root: Path, before: Set[int]) -> dict[str, list[str]]:
    """Of the pods that were played in this folder, and of this process since then."""
    started = {*children(os.getpid())} - before
    found = {
        "processes": [_named(pid) for pid in sorted(started | {*inside(root)})],
        "mounts": [line for line in _mounts("self") if str(root) in line],
        "links": [name for name in os.listdir("/sys/class/net") if network.is_ours(name)],
        "groups": [str(group) for group in memory.made() if memory.is_mine(group)],
    }
    return {what: names for what, names in found.items() if names}


def inside(root: Path) -> list[int]:
    """Processes whose files lie there, or that name it, whoever their parents are by now."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit()
        and (any(str(root) in line for line in _mounts(name)) or str(root) in _named(int(name)))
    ]


def _mounts(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return []


def _named(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        words = ""
    return f"{pid} {words}"
