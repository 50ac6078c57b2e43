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


def _is(origin: Origin, process: Path) -> bool:
    # Containers that are started together may begin in the same tick, each with a process 1.
    if os.stat(process / "ns/pid").st_ino != origin.pid_namespace:
        return False
    status = (process / "status").read_text(errors="replace")
    numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return numbers.split()[-1:] == [str(origin.pid)]


def stranger_at(origin: Origin, journal: Path, *, proc: Path = PROC) -> int | None:
    """The user of the process that a journal says it is of, if that is not the journal's owner.

    Anyone can write another's number into a journal, and would then see where that process is.
    """
    stat = read_stat(origin.pid, proc=proc)
    if stat is None or origin.process_start_ticks not in (0, stat.start_ticks):
        return None  # it has ended: whose the number is now is of no interest
    uid = real_uid(origin.pid, proc=proc)
    if uid is None:
        return None
    with journal_folder(journal) as folder:
        return None if folder.is_of(uid) else uid


def real_uid(pid: int, *, proc: Path = PROC) -> int | None:
    """Who started it; None when it is gone."""
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    words = next((line for line in status.splitlines() if line.startswith("Uid:")), "").split()
    return int(words[1]) if len(words) > 1 else None
