"""What the kernel knows about any process, cheaply and without stopping it.

It is the evidence that is left when nobody can read the stacks: a process that is stopped, frozen,
or asleep in the kernel does not run our code, and this shows it.
"""

from __future__ import annotations

import os
import platform
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.identity import User, acting_as, can_be, is_on
from runwatch.journal.liveness import PROC, read_stat

CGROUPS: Final = Path("/sys/fs/cgroup")
MAX_TASKS: Final = 256
STOPPED: Final = frozenset("Tt")
_STATUS_BYTES: Final = 1 << 14
_STACKS_FILE: Final = "stacks.txt"
_BOOKKEEPERS: Final = (b"multiprocessing.resource_tracker", b"runwatch.agent", b"py-spy")
DEAD: Final = frozenset("ZXx")

# System calls in which a process may wait for long; the numbers differ between machines.
_X86: Final = {
    0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 20: "writev", 23: "select",
    34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
    46: "sendmsg", 47: "recvmsg", 61: "wait4", 73: "flock", 74: "fsync", 75: "fdatasync",
    202: "futex", 219: "restart_syscall", 230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
    426: "io_uring_enter", 441: "epoll_pwait2",
}  # fmt: skip
_ARM: Final = {
    22: "epoll_pwait", 32: "flock", 63: "read", 64: "write", 66: "writev", 67: "pread64",
    68: "pwrite64", 72: "pselect6", 73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid",
    98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 242: "accept4", 260: "wait4", 426: "io_uring_enter", 441: "epoll_pwait2",
}  # fmt: skip
_CALLS: Final[Mapping[str, Mapping[int, str]]] = {"x86_64": _X86, "aarch64": _ARM}


@dataclass(frozen=True, slots=True)
class Task:
    """One thread, as the kernel sees it.  "" means unknown or hidden from us."""

    native_id: int
    name: str
    state: str
    wchan: str
    """The kernel function it sleeps in."""
    syscall: str
    """The system call it is in; "running" while it computes."""


@dataclass(frozen=True, slots=True)
class Facts:
    pid: int
    name: str
    state: str
    start_ticks: int
    user: int | None
    tracer: int
    """The process that traces it (a debugger); 0: none."""
    frozen: bool
    """Its control group is frozen (a paused container)."""
    tasks: tuple[Task, ...]

    @property
    def main(self) -> Task | None:
        return next((task for task in self.tasks if task.native_id == self.pid), None)

    @property
    def runs(self) -> bool:
        """Whether its threads can run: it has not ended and is neither stopped nor frozen."""
        return not (self.frozen or self.state in STOPPED or self.state in DEAD)

    @property
    def in_kernel(self) -> frozenset[int]:
        """Threads that nothing can interrupt now."""
        return frozenset(task.native_id for task in self.tasks if task.state == "D")


def look_up(pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> Facts | None:
    """None when there is no such process, or it is hidden from us."""
    try:
        stat = read_stat(pid, proc=proc)
    except PermissionError:
        return None
    if stat is None:
        return None
    status = read_status(pid, proc=proc)
    user = status.get("Uid", "").split()
    return Facts(
        pid=pid,
        name=status.get("Name", ""),
        state=stat.state,
        start_ticks=stat.start_ticks,
        user=int(user[0]) if user else None,
        tracer=int(status.get("TracerPid", "0") or 0),
        frozen=_is_frozen(pid, proc, cgroups),
        tasks=tuple(_tasks(pid, proc)),
    )


def read_status(pid: int | str, *, proc: Path = PROC) -> dict[str, str]:
    """/proc/<pid>/status as names and values; empty when it cannot be read."""
    lines = _text(proc / str(pid) / "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def is_dying(pid: int, *, proc: Path = PROC) -> bool:
    """Whether the kernel has begun to end it, or it has ended."""
    status = read_status(pid, proc=proc)
    pending = [int(status.get(name) or "0", 16) for name in ("SigPnd", "ShdPnd")]
    if any(signals >> (signal.SIGKILL - 1) & 1 for signals in pending):
        return True
    stat = read_stat(pid, proc=proc)
    return stat is None or stat.dead or stat.exiting


def users(pid: int, *, proc: Path = PROC) -> tuple[int, ...]:
    """Real, effective, saved and file-system user ids; () when there is no such process."""
    return _ids(pid, proc)[0]


def groups(pid: int, *, proc: Path = PROC) -> tuple[int, ...]:
    """The group ids, likewise."""
    return _ids(pid, proc)[1]


def _ids(pid: int, proc: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Raises OSError if the process exists but cannot be read: we must not guess its user."""
    try:
        with open(f"{proc}/{pid}/status", "rb", buffering=0) as file:
            lines = file.read(_STATUS_BYTES).splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return (), ()
    ids = [line.split()[1:] for line in lines if line.startswith((b"Uid:", b"Gid:"))]
    uids, gids = (tuple(map(int, words)) for words in ids) if len(ids) == 2 else ((), ())
    return uids, gids


def is_boxed(pid: int, *, proc: Path = PROC) -> bool:
    """Whether it is in a PID namespace below ours; then it has a pid in each."""
    return len(read_status(pid, proc=proc).get("NSpid", "").split()) > 1


def as_its_user(pid: int, *, proc: Path = PROC) -> AbstractContextManager[None]:
    """For reading what only the process's own user may see, if we can act as any user."""
    if not is_on():
        return nullcontext()
    try:
        uids, gids = _ids(pid, proc)
    except OSError:
        return nullcontext()
    return acting_as(User(uids[0], gids[0])) if uids and gids and can_be(uids[0]) else nullcontext()


def signals(mask: str) -> int:
    """A signal set of /proc/<pid>/status as a number; bit n - 1 is signal n."""
    try:
        return int(mask, 16)
    except ValueError:
        return 0


def why_silent(facts: Facts) -> str:
    """Why this process cannot answer now, as one sentence; "" if no reason shows."""
    if facts.state in DEAD:
        return f"process {facts.pid} has ended; its parent has not collected it yet (zombie)"
    if facts.frozen:
        return f"process {facts.pid} is frozen with its control group (a paused container?)"
    if facts.state == "t" or (facts.state == "T" and facts.tracer):
        return f"process {facts.pid} is held by a debugger (process {facts.tracer})"
    if facts.state == "T":
        return f"process {facts.pid} is stopped by a signal (SIGSTOP?); `kill -CONT` continues it"
    if facts.state == "D":
        main = facts.main
        where = f" (wchan {main.wchan})" if main is not None and main.wchan else ""
        return f"process {facts.pid} is in uninterruptible sleep in the kernel{where}"
    return ""


def evidence(facts: Facts) -> str:
    """What each thread does, in one line, for a process whose stacks cannot be read."""
    shown = [_described(task) for task in facts.tasks[:8]]
    more = len(facts.tasks) - len(shown)
    return "; ".join([*shown, *([f"{more} more threads"] if more else [])])


def _described(task: Task) -> str:
    at = task.syscall or "?"
    wchan = f", wchan {task.wchan}" if task.wchan else ""
    return f"{task.name or 'thread'} {task.native_id}: {task.state}, {at}{wchan}"


def tasks(pid: int, *, proc: Path = PROC) -> list[int]:
    """The ids of its threads."""
    return _numbers(proc / str(pid) / "task")


def children(pid: int, *, proc: Path = PROC) -> list[int]:
    """The children of all its threads."""
    numbers: list[int] = []
    for task in tasks(pid, proc=proc):
        numbers += map(int, _text(proc / str(pid) / "task" / str(task) / "children").split())
    return sorted(numbers)


def journal_of(pid: int, *, proc: Path = PROC) -> Path | None:
    """The folder of the journal that the process writes, from the files it has open."""
    folder = proc / str(pid) / "fd"
    for number in _numbers(folder):
        try:
            target = Path(os.readlink(folder / str(number)))
        except OSError:
            continue
        if target.name == _STACKS_FILE and target.parent.parent.name == "journals":
            return target.parent
    return None


def is_bookkeeper(pid: int, *, proc: Path = PROC) -> bool:
    """A helper process of multiprocessing or ours, for which no rank waits; or an ended one."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return True
    return any(name in words for name in _BOOKKEEPERS)


def python_version(pid: int, *, proc: Path = PROC) -> str:
    """`3.11`, from the name of its library or executable; "" if neither tells."""
    try:
        with as_its_user(pid, proc=proc):
            maps = (proc / str(pid) / "maps").read_text(errors="replace")
            exe = os.readlink(proc / str(pid) / "exe")
    except OSError:
        return ""
    match = re.search(r"libpython(3\.\d+)", maps) or re.search(r"python(3\.\d+)$", exe)
    return match[1] if match else ""


def is_python(pid: int, *, proc: Path = PROC) -> bool | None:
    """By its executable or its libraries; None when we may not see them."""
    try:
        with as_its_user(pid, proc=proc):
            name = os.path.basename(os.readlink(proc / str(pid) / "exe"))
            if name.startswith("python"):
                return True
            return "libpython" in (proc / str(pid) / "maps").read_text(errors="replace")
    except FileNotFoundError:
        return False  # ended, or a kernel thread
    except OSError:
        return None


def _tasks(pid: int, proc: Path) -> Iterator[Task]:
    for number in _numbers(proc / str(pid) / "task")[:MAX_TASKS]:
        folder = proc / str(pid) / "task" / str(number)
        stat = _text(folder / "stat")
        if ")" in stat:  # otherwise it ended just now
            wchan = _text(folder / "wchan").strip()
            yield Task(
                number,
                _text(folder / "comm").strip(),
                stat[stat.rindex(")") + 2 :][:1],
                "" if wchan == "0" else wchan,
                _call(_text(folder / "syscall")),
            )


def _call(text: str) -> str:
    word = text.split(" ", 1)[0].strip()
    if not word.isdigit():
        return word  # "running", or "" if hidden from us; "-1" means in no call
    return _CALLS.get(platform.machine(), {}).get(int(word), f"system call {word}")


def _is_frozen(pid: int, proc: Path, cgroups: Path) -> bool:
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            events = _text(cgroups / path.lstrip("/") / "cgroup.events")
            if "frozen 1" in events.splitlines():
                return True
        elif "freezer" in controllers.split(","):
            state = _text(cgroups / "freezer" / path.lstrip("/") / "freezer.state").strip()
            if state in ("FROZEN", "FREEZING"):
                return True
    return False


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def _text(path: Path) -> str:
    """The file's text; "" when it does not exist or is hidden from us."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def link_at(path: Path) -> str:
    """The link's target; "" when there is none or it is hidden from us."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
