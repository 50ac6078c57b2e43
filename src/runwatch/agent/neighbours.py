"""Which of the processes that record here we can see, and by which number.

A container counts its processes itself: the same process is 1 inside and 48213 outside.  An agent
beside the containers of a node (a DaemonSet with `hostPID`) sees them under its own numbers; one in
a container of its own (a sidecar) sees none but its own.  Whom we do not see we say nothing about:
then the heart that beats in the journal tells whether it lives.
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
    """Those that we see, or would if they lived, each with the number that it has here."""
    ours, boot = pid_namespace(proc), boot_id(proc) if boot is None else boot
    boxed: dict[int, list[Origin]] = defaultdict(list)
    for origin in origins:
        namespace = origin.pid_namespace
        same_boot = boot == origin.boot if boot and origin.boot else None
        if origin.host == host and (same_boot is False or namespace in (0, ours) or not ours):
            yield origin
        elif same_boot and namespace == ours:
            yield origin  # by another name of ours
        elif same_boot and namespace and ours:
            boxed[origin.process_start_ticks].append(origin)
    if boxed:
        yield from _found(boxed, proc)


def _found(by_birth: dict[int, list[Origin]], proc: Path) -> Iterator[Origin]:
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            stat = read_stat(int(name), proc=proc)
            for origin in by_birth.get(stat.start_ticks, ()) if stat else ():
                if _is(origin, proc / name):
                    yield replace(origin, pid=int(name))
        except OSError:
            continue  # it ended meanwhile, or is not ours to ask


def _is(origin: Origin, folder: Path) -> bool:
    # Containers that are started together may begin in the same tick, each with a process 1.
    with as_its_user(int(folder.name), proc=folder.parent):
        namespace = os.stat(folder / "ns/pid").st_ino
    if namespace != origin.pid_namespace:
        return False
    status = (folder / "status").read_text(errors="replace")
    numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return numbers.split()[-1:] == [str(origin.pid)]


class Whose(NamedTuple):
    """Of whom a process is, by the journal that says to be its own."""

    uid: int | None
    """None: it has ended."""
    stranger: str = ""
    """Why it is not the journal's: another user's, not altogether its own, or another's number."""


def whose(origin: Origin, journal: Path, *, proc: Path = PROC) -> Whose:
    """Anyone can write another's number into a journal, and would then see where that process is.

    Raises OSError where the journal cannot be asked.
    """
    stat = read_stat(origin.pid, proc=proc)
    if stat is None or origin.process_start_ticks not in (0, stat.start_ticks):
        return Whose(None)  # it has ended: whose the number is now is of no interest
    users = process.users(origin.pid, proc=proc)
    if not users:
        return Whose(None)
    with journal_folder(journal) as folder:
        strangers = [uid for uid in users if not folder.is_of(uid)]
    if strangers:
        return Whose(users[0], f"which is user {strangers[0]}'s and not its owner's")
    # One that is boxed was found by its namespace; who says to be beside us may mean another's.
    if origin.pid_namespace in (0, pid_namespace(proc)) and process.is_boxed(origin.pid, proc=proc):
        return Whose(users[0], "which lives in another PID namespace than it says")
    return Whose(users[0])


def why_not_theirs(pid: int, uid: int, *, proc: Path = PROC) -> str:
    """Why what a process is at is not for this user to see; "" if it is.

    The kernel's own rule for one user's debugger: who runs a program with another's rights (sudo,
    a set-user-id program), or one that closed itself, may not look into it.  An agent could.
    """
    try:
        users, groups = process.users(pid, proc=proc), process.groups(pid, proc=proc)
    except OSError as error:
        return f"whose process {pid} is cannot be told: {error}"
    if not users:
        return ""  # it has ended, and there is nothing to see
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
