"""Looks at a process from outside, without its help: py-spy reads its memory.

The ways, in the order in which they are tried:

1. paused, with native frames: py-spy holds the process for some milliseconds with ptrace;
2. paused, Python frames only, when native frames cannot be unwound;
3. not paused, when ptrace is refused or the process is stopped: Python frames only.  They are read
   while the process runs, so a busy thread's stack may mix two moments.

py-spy attaches with PTRACE_SEIZE: if it is killed, the kernel lets the process continue.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from runwatch.capture import process
from runwatch.capture.process import Facts
from runwatch.clock import Clock, system_clock
from runwatch.identity import can_be, is_on
from runwatch.journal.liveness import PROC
from runwatch.record.stacks import Frame, Stacks, Thread

NATIVE: Final = ("--native",)
PAUSED: Final = ()
RUNNING: Final = ("--nonblocking",)
NO_SYMBOL: Final = "<no symbol>"
WITHOUT_PAUSE: Final = "read without pausing it, Python frames only"
_CAN_PTRACE: Final = 1 << 19  # CAP_SYS_PTRACE
_TRIES: Final = 3
_STUCK_SECONDS: Final = 0.05
# The process is paused for most of this time.
_NATIVE_SECONDS: Final = 4.0
# Without it py-spy tells of a failure with a page of Rust's own stack.
_PLAIN: Final = {"RUST_BACKTRACE": "0"}
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+$")
_GRANT: Final = (
    "let the agent have CAP_SYS_PTRACE (docker: --cap-add SYS_PTRACE; Kubernetes: "
    "securityContext.capabilities.add: [SYS_PTRACE])"
)


class CannotLook(Exception):
    """Why one way did not work.  Never leaves this file."""


def py_spy(environment: Mapping[str, str] = os.environ) -> str | None:
    """The py-spy that is installed with us, else one on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    if beside.is_file():
        return str(beside)
    return shutil.which("py-spy", path=environment.get("PATH"))


@dataclass(slots=True)
class _Pausing:
    """Whether the kernel refused us ptrace, but not the memory (a container's system call filter).

    That does not change while we live, and to find it out py-spy reads every symbol first.
    """

    refused: str = ""


_pausing: Final = _Pausing()


def look(
    pid: int,
    native: bool = True,
    seconds: float = 10.0,
    *,
    start_ticks: int = 0,
    pause: bool = True,
    program: str | None = None,
    clock: Clock = system_clock,
    proc: Path = PROC,
) -> Stacks:
    """The stacks of all Python threads of `pid`; without threads if that fails, and why.

    Give `start_ticks` if known, so that a later process with the same pid is not mistaken for it.
    """
    time_ns = clock.wall_ns()
    facts = process.look_up(pid, proc=proc)
    if facts is None:
        return Stacks(pid, time_ns, "outside", problems=(_absent(pid, proc),))
    empty = Stacks(pid, time_ns, "outside", facts.state)
    if why := _why_not(facts, start_ticks, proc):
        return empty.with_problems(why)
    program = program or py_spy()
    if program is None:
        return empty.with_problems("py-spy is not installed on this host: `pip install py-spy`")
    looking = _Looking(facts, program, clock.mono_ns() + int(seconds * 1e9), clock, proc)
    return looking.at(empty, native, pause)


def may_look(pid: int, *, proc: Path = PROC) -> str:
    """Why the kernel would not let us look at the process; "" if it would.

    Opening its memory needs the same permission as reading it, and costs microseconds.
    """
    try:
        with (
            process.as_its_user(pid, proc=proc),
            open(proc / str(pid) / "mem", "rb", buffering=0),
        ):
            return ""
    except FileNotFoundError:
        return _absent(pid, proc)
    except OSError:
        return why_refused(pid, proc=proc)


def _why_not(facts: Facts, start_ticks: int, proc: Path) -> str:
    if start_ticks and start_ticks != facts.start_ticks:
        return f"process {facts.pid} has ended; another process has its pid now"
    if facts.state in process.DEAD:
        return process.why_silent(facts)
    if why := may_look(facts.pid, proc=proc):
        return why
    if process.is_python(facts.pid, proc=proc) is False:
        return _not_python(facts)
    return ""


def _absent(pid: int, proc: Path) -> str:
    namespace = process.link_at(proc / "self/ns/pid")
    here = f" (ours is {namespace})" if namespace else ""
    return (
        f"process {pid} cannot be seen from here: it has ended, belongs to another user, "
        f"or is in another PID namespace{here}"
    )


def _not_python(facts: Facts) -> str:
    return f"process {facts.pid} ({facts.name}) is not a Python program"


# ── why not ───────────────────────────────────────────────────────────────────────────────────


def why_refused(pid: int, *, proc: Path = PROC) -> str:
    """Why the kernel does not let us look: which rule, and what to do about it."""
    own, other = process.read_status("self", proc=proc), process.read_status(pid, proc=proc)
    our_uid, its_uid = own.get("Uid", "").split()[1:2], other.get("Uid", "").split()[:1]
    if process.signals(own.get("CapEff", "")) & _CAN_PTRACE:
        return _refused_with_ptrace(pid, proc)
    if our_uid != its_uid:
        return (
            f"process {pid} belongs to user {_user(its_uid)} and we run as {_user(our_uid)}: look "
            f"as that user or as root, or {_GRANT}"
        )
    if why := _refused_by_scope(pid, proc):
        return why
    if process.signals(other.get("CapPrm", "")) & ~process.signals(own.get("CapEff", "")):
        return f"process {pid} has capabilities that we do not have: {_GRANT}"
    if _owner(proc / str(pid)) not in (None, *map(int, our_uid)):
        return f"process {pid} is closed to inspection (not dumpable: it changed its user?)"
    return (
        f"the kernel does not let us look at process {pid}, though user and ptrace scope would: is "
        f"it a container's security profile (seccomp, AppArmor)?  Then {_GRANT}"
    )


def _refused_by_scope(pid: int, proc: Path) -> str:
    try:
        scope = int((proc / "sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return ""  # no Yama in this kernel
    if scope <= 0:
        return ""
    if scope == 1:
        return (
            f"process {pid} is not our child, and kernel.yama.ptrace_scope is 1: "
            f"`sudo sysctl kernel.yama.ptrace_scope=0`, or {_GRANT}"
        )
    if scope == 2:
        return f"kernel.yama.ptrace_scope is 2: looking needs CAP_SYS_PTRACE: {_GRANT}"
    return "kernel.yama.ptrace_scope is 3: nobody may look; set another value and reboot"


def _refused_with_ptrace(pid: int, proc: Path) -> str:
    ours, theirs = (process.link_at(proc / who / "ns/user") for who in ("self", str(pid)))
    if ours and theirs and ours != theirs:
        return f"process {pid} is in another user namespace ({theirs}, ours is {ours})"
    return (
        f"the kernel does not let us look at process {pid} although we have CAP_SYS_PTRACE: a "
        "security module (SELinux, AppArmor), kernel.yama.ptrace_scope=3, or a user namespace"
    )


def _user(number: list[str]) -> str:
    if not number:
        return "?"
    try:
        return f"{pwd.getpwuid(int(number[0])).pw_name} ({number[0]})"
    except KeyError:
        return number[0]


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


# ── the ways ──────────────────────────────────────────────────────────────────────────────────


class _Looking:
    """One process, looked at once."""

    def __init__(
        self, facts: Facts, program: str, deadline_ns: int, clock: Clock, proc: Path
    ) -> None:
        self.facts = facts
        self.program = program
        self.deadline_ns = deadline_ns
        self.clock = clock
        self.proc = proc
        self.notes: list[str] = []

    def at(self, empty: Stacks, native: bool, pause: bool) -> Stacks:
        threads: tuple[Thread, ...] = ()
        ways = self._ways(native, pause)
        while ways and not threads:
            way = ways.pop(0)
            try:
                threads = self._try(way, share=0.6 if ways else 1.0)
            except CannotLook as error:
                ways = self._after(way, str(error), ways)
        problems = self.notes if threads else [self._why(), *self.notes]
        return replace(empty, threads=threads).with_problems(*dict.fromkeys(problems))

    def _ways(self, native: bool, pause: bool) -> list[tuple[str, ...]]:
        if why := self._why_unpausable():
            self.notes.append(f"{why}; {WITHOUT_PAUSE}")
        elif pause and _pausing.refused:
            self.notes.append(_pausing.refused)
        elif pause:
            return [*([NATIVE] if native else []), PAUSED, RUNNING]
        return [RUNNING]

    def _why_unpausable(self) -> str:
        facts = self.facts
        if not facts.runs:
            return process.why_silent(facts)
        if facts.tracer:
            return f"process {facts.pid} is traced by process {facts.tracer}"
        stuck = facts.in_kernel
        if stuck:
            # A thread that reads its disk is there for a moment.  One that stays would make py-spy
            # wait, and with it the whole process.
            threading.Event().wait(_STUCK_SECONDS)
            again = process.look_up(facts.pid, proc=self.proc)
            stuck &= frozenset() if again is None else again.in_kernel
        if stuck:
            return f"threads {sorted(stuck)} are in uninterruptible sleep in the kernel"
        return ""

    def _after(
        self, way: tuple[str, ...], error: str, left: list[tuple[str, ...]]
    ) -> list[tuple[str, ...]]:
        """Which ways to try now that `way` failed."""
        if way == RUNNING:
            self.notes.append(error)
            return []
        if "suspend" in error and "EPERM" in error:
            why = f"ptrace is refused to us (a container's system call filter?); {WITHOUT_PAUSE}"
            if process.read_status("self", proc=self.proc).get("Seccomp", "0") != "0":
                _pausing.refused = why
            self.notes.append(why)
            return [RUNNING]
        if way == NATIVE:
            self.notes.append(f"no native frames: {error}")
        return left

    def _try(self, way: tuple[str, ...], share: float) -> tuple[Thread, ...]:
        # Without pausing, looking at a busy process may fail once and then succeed.
        for attempt in range(1, _TRIES + 1):
            try:
                return _threads(self._ask(way, share), self._pids())
            except CannotLook:
                if way != RUNNING or attempt == _TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    def _pids(self) -> frozenset[int]:
        """Its pid here, and in the PID namespaces that it lives in: py-spy knows those."""
        inner = process.read_status(self.facts.pid, proc=self.proc).get("NSpid", "").split()
        return frozenset([self.facts.pid, *map(int, inner)])

    def _ask(self, way: tuple[str, ...], share: float) -> str:
        seconds = (self.deadline_ns - self.clock.mono_ns()) / 1e9 * share
        seconds = min(seconds, _NATIVE_SECONDS) if way == NATIVE else seconds
        if seconds <= 0:
            raise CannotLook("no time was left")
        command = [self.program, "dump", "--json", "--pid", str(self.facts.pid), *way]
        try:
            done = self._done(command, seconds)
        except subprocess.TimeoutExpired:
            raise CannotLook(f"py-spy took longer than {seconds:.1f} s") from None
        except OSError as error:
            raise CannotLook(f"cannot run {self.program}: {error.strerror or error}") from error
        if done.returncode:
            raise CannotLook(_complaint(done.stderr.decode(errors="replace")))
        return done.stdout.decode(errors="replace")

    def _done(self, command: list[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """As the process's own user, where we are root and the kernel lets that user look: py-spy
        reads what that user wrote."""
        user = self._user()
        if user is not None:
            with suppress(PermissionError):  # py-spy may lie where only root can read
                return subprocess.run(
                    command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL,
                    env=_PLAIN, user=user[0], group=user[1], extra_groups=[],
                )  # fmt: skip
        return subprocess.run(
            command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL,
            env={**os.environ, **_PLAIN},
        )  # fmt: skip

    def _user(self) -> tuple[int, int] | None:
        uid = self.facts.user
        if not is_on() or os.geteuid() or not uid or not can_be(uid):
            return None
        groups = process.groups(self.facts.pid, proc=self.proc)
        guarded = _refused_by_scope(self.facts.pid, self.proc)
        return (uid, groups[0]) if groups and not guarded else None

    def _why(self) -> str:
        """The reason, after the last way failed."""
        now = process.look_up(self.facts.pid, proc=self.proc)
        if now is None or now.start_ticks != self.facts.start_ticks:
            return f"process {self.facts.pid} ended while we looked"
        if now.state in process.DEAD:
            return process.why_silent(now)
        notes = " ".join(self.notes)
        if "Unsupported version of Python" in notes:
            return f"py-spy does not support the Python of process {self.facts.pid} yet"
        if "python version" in notes:
            return _not_python(now) + ", as far as py-spy can tell"
        if "ermission denied" in notes.lower():
            return why_refused(self.facts.pid, proc=self.proc)
        return f"py-spy cannot read process {self.facts.pid}"


def _complaint(text: str) -> str:
    """The error and its causes, out of py-spy's several lines."""
    lines = [line.strip() for line in text.split("Stack backtrace:")[0].splitlines()]
    lines = [line for line in lines if line and line != "Caused by:"]
    if not lines:
        return "py-spy failed and did not say why"
    words = [lines[0].removeprefix("Error: ").rstrip(".")]
    words += dict.fromkeys(
        line.split(": ", 1)[-1] if line[:1].isdigit() else line for line in lines[1:]
    )
    return ": ".join(words)[:500]


def _threads(text: str, pids: frozenset[int]) -> tuple[Thread, ...]:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise CannotLook(f"py-spy answered something else than JSON: {error}") from error
    if not isinstance(answer, list) or not answer:
        raise CannotLook("py-spy found no Python thread")
    threads = [_thread(each, pids) for each in answer if isinstance(each, Mapping)]
    return tuple(sorted(threads, key=lambda thread: not thread.is_main))


def _thread(plain: Mapping[str, Any], pids: frozenset[int]) -> Thread:
    native_id, name = plain.get("os_thread_id") or 0, plain.get("thread_name") or ""
    is_main = native_id in pids or (name == "MainThread" and not native_id)
    return Thread(
        name=str(name or ("MainThread" if is_main else "")),
        native_id=int(native_id),
        frames=tuple(_frames(plain.get("frames") or ())),
        is_main=is_main,
        holds_gil=bool(plain.get("owns_gil")),
        idle=not plain.get("active", True),
        ident=int(plain.get("thread_id") or 0),
    )


def _frames(frames: Iterable[Mapping[str, Any]]) -> Iterable[Frame]:
    for plain in frames:
        name, native = str(plain.get("name", "")), plain.get("module") is not None
        # Addresses differ between processes and would keep equal stacks apart.
        name = NO_SYMBOL if native and _ADDRESS.match(name) else name
        yield Frame(name, str(plain.get("filename", "")), int(plain.get("line") or 0), native)
