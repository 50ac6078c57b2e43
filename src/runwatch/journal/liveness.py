"""Whether the process that wrote a journal is still alive, as far as this host can tell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from runwatch.files import journal_folder
from runwatch.record import Origin

PROC = Path("/proc")
ENDED = "ended.json"
"""A file in a journal's folder: an agent saw the writer end, and how."""
_DEAD_STATES = frozenset("ZXx")
_EXITING = 0x4


class ProcessStat(NamedTuple):
    """The fields of /proc/<pid>/stat that we use."""

    state: str
    user_ticks: int
    system_ticks: int
    threads: int
    start_ticks: int
    resident_pages: int
    exit_status: int
    """As from wait(2).  Valid for a zombie only, and only if we may inspect the process."""
    flags: int

    @property
    def exiting(self) -> bool:
        """It runs none of its code any more, but may still have its memory."""
        return bool(self.flags & _EXITING)

    @property
    def dead(self) -> bool:
        return self.state in _DEAD_STATES


def read_stat(pid: int, *, proc: Path = PROC) -> ProcessStat | None:
    """None when there is no such process."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in the parentheses may itself hold spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    numbers = (int(fields[i]) for i in (11, 12, 17, 19, 21, 49, 6))
    return ProcessStat(fields[0].decode(), *numbers)


def start_ticks(pid: int, *, proc: Path = PROC) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process."""
    stat = read_stat(pid, proc=proc)
    return None if stat is None else stat.start_ticks


def this_host(environment: Mapping[str, str] = os.environ) -> str:
    """This node's name, the same for the program and the agent: RUNWATCH_HOST, else the kernel's
    name.  Not HOSTNAME: Slurm passes the login node's to every node."""
    return environment.get("RUNWATCH_HOST") or os.uname().nodename or "host"


@lru_cache(maxsize=4)
def boot_id(proc: Path = PROC) -> str:
    """The kernel's id of this boot, which is constant while we run; "" where there is none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace(proc: Path = PROC) -> int:
    """The kernel's number for our pid namespace; 0 where there is none."""
    try:
        return os.stat(proc / "self/ns/pid").st_ino
    except OSError:
        return 0


def is_alive(
    origin: Origin, *, proc: Path = PROC, boot: str | None = None, host: str | None = None
) -> bool | None:
    """True or False for a process of this host; None when we cannot tell from here."""
    if origin.host != (this_host() if host is None else host) or origin.pid <= 0:
        return None
    boot = boot_id(proc) if boot is None else boot
    if boot and origin.boot and origin.boot != boot:
        return False  # the host was restarted since
    ours = pid_namespace(proc)
    if ours and origin.pid_namespace not in (0, ours):
        return None  # it is in another container, which has its own pids
    if not os.path.isdir(f"{proc}/self"):
        return None  # not Linux, or a /proc that we cannot use
    try:
        stat = read_stat(origin.pid, proc=proc)
    except OSError:
        return None  # /proc hides other users' processes, or we have too many files open
    if stat is None or stat.dead:
        return False
    if not origin.process_start_ticks and not (boot and origin.boot):
        return None  # any process may have that pid by now
    return origin.process_start_ticks in (0, stat.start_ticks)


def has_ended(journal: Path) -> bool:
    """Whether an agent saw the journal's writer end."""
    try:
        with journal_folder(journal) as folder:
            return folder.has(ENDED)
    except OSError:
        return False
