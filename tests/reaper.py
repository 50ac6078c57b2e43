"""Ends what a test session has started, when the session is over or was killed.

The pytest controller starts `python -IS reaper.py PID PIDFD MARK DIRECTORY`.  The program waits
until that process has ended, or has written to its standard input.  Then it kills all processes
with the mark, unmounts what is mounted below the directory, and removes the directory, unless it
has read `keep`.

The mark is a limit for realtime processes, so large that it limits nothing.  A process passes its
limits on to all that it starts, whatever their environment, parent, session, user or namespace is.
"""

from __future__ import annotations

import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

LIMIT: Final = resource.RLIMIT_RTTIME
SECONDS: Final = 60
"""Processes that cannot be killed (in uninterruptible sleep) are left after this time."""
CGROUPS: Final = "runwatch-pods-*"
"""Control groups of tests; the name continues with the process that made the group."""


def start(directory: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Starts the reaper of this process, and then marks this process.

    In a marked one the outer mark stays as the hard limit: the outer reaper ends all of it, too.
    """
    _, outer = resource.getrlimit(LIMIT)
    outermost = outer == resource.RLIM_INFINITY
    mark = random.randrange(2**61, 2**62) if outermost else random.randrange(2**60, 2**61)
    pid, pidfd = os.getpid(), os.pidfd_open(os.getpid())
    words = map(str, (__file__, pid, pidfd, mark, directory))
    reaper = subprocess.Popen(
        [sys.executable, "-IS", *words],
        stdin=subprocess.PIPE, pass_fds=[pidfd], cwd="/", start_new_session=True,
    )  # fmt: skip
    os.close(pidfd)
    resource.setrlimit(LIMIT, (mark, mark if outermost else outer))
    return reaper, str(mark)


def marked(mark: str, controller: int = 0) -> list[int]:
    """Returns the processes with the mark, but not a living controller and its Python's helpers."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = [pid for pid in pids if pid != controller and mark in read(pid, "limits").split()]
    return [pid for pid in found if not has_ended(pid) and not is_helper(pid, controller)]


def has_ended(pid: int) -> bool:
    return re.search(r"^State:\s+[^ZX]", read(pid, "status"), re.MULTILINE) is None


def is_helper(pid: int, controller: int) -> bool:
    """Whether the process ends with the controller, as those of multiprocessing do."""
    is_child = f"\nPPid:\t{controller}\n" in read(pid, "status")
    return is_child and "from multiprocessing" in read(pid, "cmdline")


def read(pid: int | str, file: str) -> str:
    return read_file(Path("/proc", str(pid), file))


def read_file(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # a process that has ended, or of another user
        return ""


def describe(pid: int) -> tuple[str, str]:
    """Returns the process in words, and the test that was running when its program started."""
    variables = dict(line.partition("=")[::2] for line in read(pid, "environ").split("\0"))
    command = read(pid, "cmdline").replace("\0", " ").strip() or read(pid, "comm").strip()
    return f"{pid} {command[:300]}", variables.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def kill(mark: str, controller: int) -> int:
    """Returns how many processes were killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while (found := marked(mark, controller)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(0.02)
    return len(killed)


def unmount(directory: Path) -> None:
    for point in reversed(mount_points()):
        if directory in Path(point).parents:
            subprocess.run(["umount", "--lazy", point])
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        if directory in Path(read_file(file).strip()).parents:
            subprocess.run(["losetup", "--detach", f"/dev/{file.parts[3]}"])
    for group in Path("/sys/fs/cgroup").glob(f"**/{CGROUPS}"):
        if has_ended(int(group.name.split("-")[2])):
            remove_group(group)


def remove_group(group: Path) -> None:
    """Retries while the kernel takes a killed process apart."""
    for _ in range(100):
        try:
            return group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():  # folders that their owner may not enter
        subprocess.run(["chmod", "-R", "u+rwX", directory])
        shutil.rmtree(directory, ignore_errors=True)


def mount_points() -> list[str]:
    lines = read("self", "mountinfo").splitlines()
    return [line.split()[4].encode().decode("unicode_escape") for line in lines]


def main(pid: int, pidfd: int, mark: str, directory: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ready, _, _ = select.select([pidfd, 0], [], [])
    order = os.read(0, 99) if 0 in ready else b""
    if not order:
        select.select([pidfd], [], [])
    killed = kill(mark, pid if order else 0)
    if not order:
        print(f"pytest was killed, with {killed} processes of its tests", file=sys.stderr)
    unmount(directory)
    if order != b"keep":
        remove(directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
