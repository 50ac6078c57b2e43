"""How real processes end, seen by someone who is not their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.agent.cgroup import memory_cgroup
from runwatch.agent.watch import Exit, ProcessWatch, exit_status
from runwatch.capture.process import is_dying
from runwatch.journal.liveness import boot_id, start_ticks
from runwatch.record import JournalId, Origin
from runwatch.testing import until

DEADLINE_SECONDS = 100.0


@pytest.fixture
def watch() -> Iterator[ProcessWatch]:
    files = len(os.listdir("/proc/self/fd"))
    watch = ProcessWatch()
    yield watch
    watch.close()
    assert len(os.listdir("/proc/self/fd")) <= files


def origin_of(pid: int, journal: str = "") -> Origin:
    ticks = start_ticks(pid)
    assert ticks is not None
    name = JournalId(journal or f"journal-{pid}")
    return Origin(name, socket.gethostname(), pid, 0, boot_id(), ticks)


def wait_for_exits(watch: ProcessWatch, count: int = 1) -> list[Exit]:
    found: list[Exit] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline
        found += watch.poll(1.0)
    return found


class Process:
    """Runs `code` once told to go on; not our child if `adopted`, so that others reap it."""

    def __init__(self, code: str, *, adopted: bool) -> None:
        no_core = "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
        body = f"import os, resource, sys, signal, threading\n{no_core}\ninput()\n{code}"
        if adopted:  # a parent in between that reaps its child at once
            body = (
                "import subprocess, sys\n"
                f"child = subprocess.Popen([sys.executable, '-c', {body!r}], stderr=-3)\n"
                "print(child.pid, flush=True)\nchild.wait()\nprint('reaped', flush=True)"
            )
        self._process = subprocess.Popen(
            [sys.executable, "-c", body],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        if adopted:
            assert self._process.stdout is not None
            self.pid = int(self._process.stdout.readline())

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        self._process.communicate()


ENDS = [
    ("pass", 0, None),
    ("sys.exit(3)", 3, None),
    ("raise ValueError", 1, None),
    ("raise SystemExit('with words')", 1, None),
    ("os._exit(7)", 7, None),
    ("threading.Thread(target=os._exit, args=(9,)).start(); signal.pause()", 9, None),
    ("os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
    ("os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
    ("os.kill(os.getpid(), signal.SIGTERM)", None, signal.SIGTERM),
    ("os.abort()", None, signal.SIGABRT),
]


def test_since_when_it_may_be_gone(watch: ProcessWatch) -> None:
    early, late = (Process("pass", adopted=False) for _ in range(2))
    watch.add(origin_of(early.pid))
    watch.add(origin_of(late.pid))
    early.go_on()
    early.wait()
    knew_late = time.time_ns()
    assert [gone.origin.pid for gone in watch.poll(0)] == [early.pid]
    assert watch.poll(0) == []
    late.go_on()
    (gone,) = wait_for_exits(watch)
    assert knew_late <= gone.lived_ns <= gone.time_ns
    late.wait()


@pytest.mark.parametrize("adopted", [False, True], ids=["zombie", "reaped"])
@pytest.mark.parametrize(("code", "expected_code", "expected_signal"), ENDS)
def test_how_it_ended(
    watch: ProcessWatch,
    code: str,
    expected_code: int | None,
    expected_signal: int | None,
    adopted: bool,
) -> None:
    if adopted and not kernel_tells():
        pytest.skip("this kernel does not tell how a reaped process ended (Linux 6.15 does)")
    process = Process(code, adopted=adopted)
    origin = origin_of(process.pid)
    watch.add(origin)
    assert watch.poll(0) == []
    assert list(watch.watched()) == [origin]
    process.go_on()
    if adopted:
        process.wait()  # its parent has it reaped before we ask
    (gone,) = wait_for_exits(watch)
    process.wait()
    assert (gone.origin, gone.code, gone.signal) == (origin, expected_code, expected_signal)
    assert gone.oom in (False, None)
    assert gone.core_dumped is False
    assert abs(gone.time_ns - time.time_ns()) < DEADLINE_SECONDS * 1e9
    assert list(watch.watched()) == []
    assert watch.poll(0) == []


def kernel_tells() -> bool:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    status = exit_status(pidfd)
    os.close(pidfd)
    assert status in (None, 5 << 8)
    return status is not None


def test_reaped_while_we_look(watch: ProcessWatch) -> None:
    """Many at once, reaped by their parents at any moment."""
    processes = [Process(f"sys.exit({n})", adopted=True) for n in range(8)]
    numbers = {}
    for number, process in enumerate(processes):
        origin = origin_of(process.pid)
        numbers[origin] = number
        watch.add(origin)
    for process in processes:
        process.go_on()
    exits = wait_for_exits(watch, len(processes))
    for process in processes:
        process.wait()
    told = {gone.origin: gone.code for gone in exits if gone.code is not None}
    assert told.items() <= numbers.items()  # of some we may have been quicker than their parents
    assert told == numbers or not kernel_tells()


def test_dead_before_we_looked(watch: ProcessWatch) -> None:
    process = Process("pass", adopted=False)
    origin = origin_of(process.pid)
    process.go_on()
    process.wait()
    watch.add(origin)
    (gone,) = watch.poll(0)
    assert (gone.origin, gone.code, gone.signal, gone.oom) == (origin, None, None, None)
    assert watch.poll(0) == []


def test_a_zombie_when_we_looked(watch: ProcessWatch) -> None:
    process = Process("sys.exit(4)", adopted=False)
    origin = origin_of(process.pid)
    process.go_on()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    watch.add(origin)
    (gone,) = wait_for_exits(watch)
    process.wait()
    assert gone.code == 4


def test_a_later_process_with_the_same_pid_is_not_taken_for_it(watch: ProcessWatch) -> None:
    real = origin_of(os.getpid())
    watch.add(replace(real, process_start_ticks=real.process_start_ticks - 1))
    (gone,) = watch.poll(0)
    assert (gone.code, gone.signal) == (None, None)
    assert list(watch.watched()) == []


def test_added_twice_is_watched_once(watch: ProcessWatch) -> None:
    process = Process("pass", adopted=False)
    origin = origin_of(process.pid)
    watch.add(origin)
    watch.add(origin)
    process.go_on()
    assert len(wait_for_exits(watch)) == 1
    process.wait()
    assert watch.poll(0) == []


def test_two_journals_of_one_process(watch: ProcessWatch) -> None:
    process = Process("sys.exit(2)", adopted=False)
    watch.add(origin_of(process.pid, "first"))
    watch.add(origin_of(process.pid, "second"))
    process.go_on()
    exits = wait_for_exits(watch, 2)
    process.wait()
    assert {(gone.origin.journal, gone.code) for gone in exits} == {("first", 2), ("second", 2)}


def test_without_pidfds_proc_is_asked(watch: ProcessWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = Process("sys.exit(6)", adopted=False)
    watch.add(origin_of(process.pid))
    assert watch.poll(0) == []
    process.go_on()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    (gone,) = watch.poll(0)
    process.wait()
    assert gone.code == 6


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A real control group with little memory."""
    folder = Path(f"/sys/fs/cgroup/memory/runwatch-test-{os.getpid()}")
    limit = folder / "memory.limit_in_bytes"
    if not folder.parent.is_dir():
        folder = Path(f"/sys/fs/cgroup/runwatch-test-{os.getpid()}")
        limit = folder / "memory.max"
    try:
        folder.mkdir()
        limit.write_text(str(64 << 20))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


def test_killed_for_want_of_memory(watch: ProcessWatch, small_memory: Path) -> None:
    hog = Process("x = bytearray(512 << 20)", adopted=False)
    other = Process("os.kill(os.getpid(), signal.SIGKILL)", adopted=False)
    for process in (hog, other):
        (small_memory / "cgroup.procs").write_text(str(process.pid))
        watch.add(origin_of(process.pid))
    other.go_on()
    (killed,) = wait_for_exits(watch)
    other.wait()
    hog.go_on()
    (starved,) = wait_for_exits(watch)
    hog.wait()
    assert (killed.signal, killed.oom) == (signal.SIGKILL, False)
    assert (starved.signal, starved.oom) == (signal.SIGKILL, True)


class Counted:
    """A group that real processes are in, as far as `watch` sees, whose count a test writes."""

    def __init__(self, root: Path) -> None:
        place = memory_cgroup()
        assert place is not None
        mount, version = (root / "memory", 1) if place.version == 1 else (root, 2)
        folder = mount / place.directory.relative_to(place.mount)
        folder.mkdir(parents=True)
        (folder / "memory.usage_in_bytes").touch()
        self._file = folder / ("memory.oom_control" if version == 1 else "memory.events")
        self.set(0)

    def set(self, kills: int) -> None:
        self._file.write_text(f"oom_kill {kills}\n")


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    if memory_cgroup() is None:
        pytest.skip("no memory controller")
    return Counted(tmp_path)


DYING = """
import ctypes, platform
threading.Thread(target=lambda: (input(), os.kill(os.getpid(), signal.SIGKILL))).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""
"""Its first thread has ended, and what else it has takes its time."""


def test_one_that_takes_long_to_die_of_it(tmp_path: Path, counted: Counted) -> None:
    """The kernel has counted it at a look before, and other looks pass until it has ended."""
    watch = ProcessWatch(cgroups=tmp_path)
    slow, beside = Process(DYING, adopted=False), Process(ENDS[6][0], adopted=False)
    for process in (slow, beside):
        watch.add(origin_of(process.pid))
    assert watch.poll(0) == []
    slow.go_on()
    until(lambda: is_dying(slow.pid))
    counted.set(1)
    for _ in range(3):
        assert watch.poll(0) == []
    for process in (slow, beside):
        process.go_on()
    by_pid = {gone.origin.pid: gone for gone in wait_for_exits(watch, 2)}
    for process in (slow, beside):
        process.wait()
    watch.close()
    assert (by_pid[slow.pid].signal, by_pid[slow.pid].oom) == (signal.SIGKILL, True)
    assert (by_pid[beside.pid].signal, by_pid[beside.pid].oom) == (signal.SIGKILL, False)


def test_one_that_is_not_yet_dying_when_it_is_counted(tmp_path: Path, counted: Counted) -> None:
    """The kernel counts first, and then kills."""
    watch = ProcessWatch(cgroups=tmp_path)
    process = Process(ENDS[6][0], adopted=False)
    watch.add(origin_of(process.pid))
    counted.set(1)
    assert watch.poll(0) == []
    process.go_on()
    (gone,) = wait_for_exits(watch)
    process.wait()
    watch.close()
    assert (gone.signal, gone.oom) == (signal.SIGKILL, True)
