"""Learns how processes end, though they are not our children.

A pidfd becomes readable when its process ends.  The kernel gives the exit status in one of two
places.  Until the parent reaps the process, it is field 52 of the zombie's /proc/<pid>/stat.
Afterwards, from Linux 6.15 on, the PIDFD_GET_INFO ioctl gives it for a pidfd opened before.  With
neither we know that the process ended, but not how: code and signal are both None.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.agent.cgroup import CGROUPS, MemoryCgroup, memory_cgroup
from runwatch.capture.process import as_its_user, is_dying
from runwatch.clock import Clock, system_clock
from runwatch.identity import SYS_PTRACE, can_be, powers
from runwatch.journal.liveness import PROC, read_stat
from runwatch.record import JournalId, Origin

# struct pidfd_info: u64 mask; 52 bytes of ids and credentials; i32 exit status at offset 60.
_INFO_BYTES: Final = 64
_INFO_EXIT: Final = 1 << 3
_GET_INFO: Final = 3 << 30 | _INFO_BYTES << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, pidfd_info)
_TRIES: Final = 10
_TRY_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.  If `code` and `signal` are both None, the cause is not known."""

    origin: Origin
    code: int | None
    signal: int | None
    core_dumped: bool
    time_ns: int
    """When we learned of it."""
    lived_ns: int
    """When we last saw it alive."""
    oom: bool | None
    """Whether the kernel killed it because memory ran out; None: not known."""


@dataclass(slots=True)
class _Watched:
    origin: Origin
    pidfd: int | None
    """None if the kernel gave none: then we look into /proc."""
    cgroup: MemoryCgroup | None
    added_ns: int
    kills: int | None
    """How many processes of its group memory had ended when we last counted."""
    has_grown: bool = False
    """That count was more than the one before."""
    starves: bool = False
    """It was dying then: it is the one."""


class ProcessWatch:
    """`add` begins to watch a process; `poll` returns the processes that have ended since."""

    def __init__(
        self, *, proc: Path = PROC, cgroups: Path = CGROUPS, clock: Clock = system_clock
    ) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._clock = clock
        self._watched: dict[JournalId, _Watched] = {}
        self._ready = select.poll()
        self._by_pidfd: dict[int, JournalId] = {}
        self._gone: list[Exit] = []
        self._looked_ns = 0

    def add(self, origin: Origin) -> None:
        """The next `poll` returns a process that is already dead."""
        if origin.journal in self._watched:
            return
        try:
            pidfd = os.pidfd_open(origin.pid)
        except ProcessLookupError:
            self._gone.append(self._unknown(origin))
            return
        except (OSError, AttributeError, ValueError):
            pidfd = None  # an old kernel, or too many open files
        if not self._is_same(origin):
            # The pidfd, if any, belongs to a later process with the same pid.
            if pidfd is not None:
                os.close(pidfd)
            self._gone.append(self._unknown(origin))
            return
        cgroup = memory_cgroup(origin.pid, proc=self._proc, cgroups=self._cgroups)
        now_ns = self._clock.wall_ns()
        kills = cgroup.oom_kills() if cgroup else None
        self._watched[origin.journal] = _Watched(origin, pidfd, cgroup, now_ns, kills)
        if pidfd is not None:
            self._by_pidfd[pidfd] = origin.journal
            self._ready.register(pidfd, select.POLLIN)

    def watched(self) -> Iterator[Origin]:
        """The processes whose end we have not seen."""
        for each in list(self._watched.values()):
            yield each.origin

    def poll(self, timeout: float) -> list[Exit]:
        """The processes that have ended.  Waits up to `timeout` seconds for the first."""
        gone, self._gone = self._gone, []
        gone += self._ended(0)
        if not gone:
            gone += self._ended(max(0, int(timeout * 1000)))
        self._count_oom_kills()
        return gone

    def _ended(self, milliseconds: int) -> list[Exit]:
        looked_ns = self._clock.wall_ns()
        ended = [self._watched[self._by_pidfd[fd]] for fd, _ in self._ready.poll(milliseconds)]
        ended += [w for w in self._watched.values() if w.pidfd is None and self._is_over(w.origin)]
        gone = [self._end(each) for each in ended]
        self._looked_ns = looked_ns
        return gone

    def close(self) -> None:
        for each in list(self._watched.values()):
            self._forget(each)

    # ── one process ───────────────────────────────────────────────────────────────────────────

    def _is_same(self, origin: Origin) -> bool:
        stat = read_stat(origin.pid, proc=self._proc)
        return stat is not None and origin.process_start_ticks in (0, stat.start_ticks)

    def _is_over(self, origin: Origin) -> bool:
        stat = read_stat(origin.pid, proc=self._proc)
        return stat is None or stat.dead or not self._is_same(origin)

    def _end(self, each: _Watched) -> Exit:
        kills = each.cgroup.oom_kills() if each.cgroup else None  # its group may be gone soon
        status = self._status(each)
        oom = self._was_oom(each, status, kills)
        self._forget(each)
        if status is None:
            return self._unknown(each.origin)
        killed = os.WIFSIGNALED(status)
        return Exit(
            each.origin,
            code=None if killed else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if killed else None,
            core_dumped=killed and os.WCOREDUMP(status),
            time_ns=self._clock.wall_ns(),
            lived_ns=max(each.added_ns, self._looked_ns),
            oom=oom,
        )

    def _unknown(self, origin: Origin) -> Exit:
        now_ns = self._clock.wall_ns()
        return Exit(origin, None, None, False, now_ns, now_ns, None)

    def _status(self, each: _Watched) -> int | None:
        for _ in range(_TRIES):
            status = self._zombie_status(each.origin)
            if status is None and each.pidfd is not None:
                status = exit_status(each.pidfd)
            if status is not None or each.pidfd is None:
                return status
            select.select([], [], [], _TRY_SECONDS)  # its parent is reaping it at this moment
        return None

    def _zombie_status(self, origin: Origin) -> int | None:
        try:
            owner = (self._proc / str(origin.pid)).stat().st_uid
            with as_its_user(origin.pid, proc=self._proc):
                stat = read_stat(origin.pid, proc=self._proc)
        except OSError:
            return None
        if stat is None or not stat.dead or not self._is_same(origin):
            return None
        # The kernel shows other users 0, which would look like success.
        is_shown = can_be(owner) or bool(powers() & SYS_PTRACE)
        return stat.exit_status if is_shown else None

    def _forget(self, each: _Watched) -> None:
        del self._watched[each.origin.journal]
        if each.pidfd is not None:
            self._ready.unregister(each.pidfd)
            del self._by_pidfd[each.pidfd]
            os.close(each.pidfd)
        if each.cgroup is not None:
            each.cgroup.close()

    # ── out of memory ─────────────────────────────────────────────────────────────────────────

    def _was_oom(self, each: _Watched, status: int | None, after: int | None) -> bool | None:
        if status is None:
            return None
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return False
        if each.starves or each.has_grown:
            return True
        return None if each.kills is None or after is None else after > each.kills

    def _count_oom_kills(self) -> None:
        """Count at every poll, so that an older kill is not taken for a new one.

        The kernel counts first, and then kills.  With much memory a process takes long to end, and
        we count in between: so who is dying at that count or the next is the one.
        """
        groups = {w.cgroup.directory: w.cgroup for w in self._watched.values() if w.cgroup}
        counts = {path: group.oom_kills() for path, group in groups.items()}
        for each in self._watched.values():
            if each.cgroup is None:
                continue
            kills, had_grown = counts[each.cgroup.directory], each.has_grown
            each.has_grown = kills is not None and each.kills is not None and kills > each.kills
            each.kills = kills
            if each.has_grown or had_grown:
                each.starves = each.starves or is_dying(each.origin.pid, proc=self._proc)


def exit_status(pidfd: int) -> int | None:
    """The wait status of a reaped process; None if it is not reaped, or the kernel is too old."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("<Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, status = struct.unpack("<Q52xi", info)
    return int(status) if mask & _INFO_EXIT else None
