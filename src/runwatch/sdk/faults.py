"""Leaves the stacks of a process of a run when it dies of a fault, or when a signal asks for them.

From `init` on, SEGV, FPE, ABRT, BUS and ILL write the stacks of all threads to `faults.txt` beside
the journal.  STACK_SIGNAL, by which an agent asks a process that does not answer, writes them to
`stacks.txt`.  This costs two open files and nothing else.  The process dies as it would have.

We leave a program alone that uses faulthandler itself (or has PYTHONFAULTHANDLER set), and one that
hosts a Java machine, which uses SEGV.  RUNWATCH_STACKS=off switches all of this off.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from runwatch.capture.dispositions import NOBODYS, handler
from runwatch.capture.dump_file import append_to, heading, write_all
from runwatch.capture.faulthandling import Desk, SignalDesk, faults
from runwatch.capture.stack_signal import STACK_SIGNAL
from runwatch.clock import Clock, system_clock
from runwatch.interruption import let_pass
from runwatch.journal.descriptor import Descriptor
from runwatch.journal.liveness import this_host
from runwatch.sdk.guard import guarded, tally
from runwatch.sdk.switches import is_off

FAULTS: Final = "faults.txt"
ASKED: Final = "stacks.txt"

asked: Final = SignalDesk(STACK_SIGNAL, shared=False)


class _File(NamedTuple):
    path: Path
    fd: Descriptor
    empty_bytes: int
    desk: Desk
    pid: int


_open: Final[list[_File]] = []


@guarded("watch for faults")
def watch_faults(
    journal: Path, *, environment: Mapping[str, str] = os.environ, clock: Clock = system_clock
) -> None:
    """`journal`: the directory of this process's journal."""
    if is_off("RUNWATCH_STACKS", environment):
        return
    watchdog: Any = sys.modules.get("runwatch.capture.watchdog")
    if watchdog is not None:  # a `diagnose` block is around us
        watchdog.tell(journal)
    header = heading("opened", {"host": this_host(), "pid": os.getpid()}, clock.wall_ns())
    if _may_watch(environment):
        _add(journal / FAULTS, header, faults)
    _add(journal / ASKED, header, asked)


def _add(path: Path, header: str, desk: Desk) -> None:
    try:
        fd = append_to(path)
        write_all(fd, header)
    except OSError as error:
        let_pass(error)
        tally.count("no fault file", f"{path}: {error}: a crash will leave no stacks")
        return
    if desk.add(fd):
        _open.append(_File(path, Descriptor(fd), os.fstat(fd).st_size, desk, os.getpid()))
    else:
        os.close(fd)
        path.unlink(missing_ok=True)


@guarded("stop watching for faults")
def unwatch_faults(journal: Path | None = None) -> None:
    """For the run with this journal; without a journal, for every run of this process."""
    own = [file for file in _open if file.pid == os.getpid()]
    for file in own:
        if journal is None or file.path.parent == journal:
            _open.remove(file)
            _close(file)


@guarded("watch for faults again")
def mind_faults() -> None:
    """The program may have closed our descriptors and reused their numbers: open new files, so that
    a dump does not go into the program's."""
    for file in list(_open):
        if file.pid == os.getpid() and not file.fd.is_ours():
            _open.remove(file)
            file.desk.remove(file.fd.fd)
            header = heading("opened", {"host": this_host(), "pid": os.getpid()}, time.time_ns())
            _add(file.path, header, file.desk)


def _close(file: _File) -> None:
    file.desk.remove(file.fd.fd)
    file.fd.close()
    with suppress(FileNotFoundError):
        if file.path.stat().st_size <= file.empty_bytes:
            file.path.unlink()


def _may_watch(environment: Mapping[str, str]) -> bool:
    if faults.is_ours:
        return True
    if faulthandler.is_enabled() or environment.get("PYTHONFAULTHANDLER"):
        return False
    return handler(signal.SIGSEGV) in NOBODYS or not _hosts_java()


def _hosts_java(maps: Path = Path("/proc/self/maps")) -> bool:
    """A Java machine uses SEGV to check for null, and goes on."""
    try:
        return "libjvm" in maps.read_text(errors="replace")
    except OSError:
        return False
