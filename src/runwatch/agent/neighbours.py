"""Which of the processes that record here the agent can see, and under which pid.

A container counts its own processes: the same process is 1 inside and 48213 outside.  An agent
outside the containers of a node (a DaemonSet with `hostPID`) sees their processes under its own
numbers.  An agent in a container of its own (a sidecar) sees only that container's.  It does not
watch a process that it cannot see: the heartbeat in the journal tells whether that process lives.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runwatch.capture import process
from runwatch.capture.process import as_its_user
from runwatch.files import journal_folder
from runwatch.journal.liveness import PROC, boot_id, pid_namespace, read_stat
from runwatch.record import Origin


def seen_from_here(
    origins: Iterable[Origin], host: str, *, proc: Path = PROC, boot: str | None = None
) -> Iterator[Origin]:
    """The processes that we see, or would see if they lived, each with its pid here."""
    ours, boot = pid_namespace(proc), boot_id(proc) if boot is None else boot
    boxed: dict[int, list[Origin]] = defaultdict(list)
    for origin in origins:
        namespace = origin.pid_namespace
        same_boot = boot == origin.boot if boot and origin.boot else None
        if origin.host == host and (same_boot is False or namespace in (0, ours) or not ours):
            yield origin
        elif same_boot and namespace == ours:
            yield origin  # it calls this host by another name
        elif same_boot and namespace and ours:
            boxed[origin.process_start_ticks].append(origin)
    if boxed:
        yield from _found_by_birth(boxed, proc)


def _found_by_birth(by_birth: dict[int, list[Origin]], proc: Path) -> Iterator[Origin]:
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            stat = read_stat(int(name), proc=proc)
            for origin in by_birth.get(stat.start_ticks, ()) if stat else ():
                if _is(origin, proc / name):
                    yield replace(origin, pid=int(name))
        except OSError:
            continue  # the process has ended, or is not ours to read


def _is(origin: Origin, folder: Path) -> bool:
    # The birth alone is not enough: two containers may each start a process 1 in the same tick.
    with as_its_user(int(folder.name), proc=folder.parent):
        namespace = os.stat(folder / "ns/pid").st_ino
    if namespace != origin.pid_namespace:
        return False
    status = (folder / "status").read_text(errors="replace")
    numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return numbers.split()[-1:] == [str(origin.pid)]


class Whose(NamedTuple):
    """Whose process a journal names."""

    uid: int | None
    """The process's user; None: the process has ended."""
    stranger: str = ""
    """Why the journal cannot be this process's; "" if it can."""


def whose(origin: Origin, journal: Path, *, proc: Path = PROC) -> Whose:
    """Whose process it is.  A user could name another user's process in a journal to spy on it.

    Raises OSError if the journal cannot be read.
    """
    stat = read_stat(origin.pid, proc=proc)
    if stat is None or origin.process_start_ticks not in (0, stat.start_ticks):
        return Whose(None)  # it has ended; a later process may have its pid
    users = process.users(origin.pid, proc=proc)
    if not users:
        return Whose(None)
    with journal_folder(journal) as folder:
        strangers = [uid for uid in users if not folder.is_of(uid)]
    if strangers:
        return Whose(users[0], f"which is user {strangers[0]}'s and not its owner's")
    # A process in a container was found by its namespace.  One that claims ours is checked.
    if origin.pid_namespace in (0, pid_namespace(proc)) and process.is_boxed(origin.pid, proc=proc):
        return Whose(users[0], "which lives in another PID namespace than it says")
    return Whose(users[0])


def why_not_theirs(pid: int, uid: int, *, proc: Path = PROC) -> str:
    """Why this user may not look into a process; "" if the user may.

    This is the kernel's rule for a user's debugger.  A user may not look into a program that runs
    with another's rights (sudo, a set-user-id program), nor into one that made itself undumpable.
    The agent may have the rights to, so it checks.
    """
    try:
        users, groups = process.users(pid, proc=proc), process.groups(pid, proc=proc)
    except OSError as error:
        return f"the user of process {pid} cannot be read: {error}"
    if not users:
        return ""  # it has ended
    if strangers := [each for each in users if each != uid]:
        return f"process {pid} runs as user {strangers[0]}, not as its run's ({uid})"
    if len(set(groups)) > 1:
        return f"process {pid} runs with the rights of group {groups[1]}: its user may not look"
    try:
        keeper = os.stat(proc / str(pid) / "environ").st_uid
    except OSError:
        return ""
    if keeper != uid:
        return f"process {pid} is closed to inspection (not dumpable: it changed its user?)"
    return ""
