"""Asks a process for its stacks, with its help and without any privilege.

First through its control socket, which a thread of the SDK serves.  A process that does not answer
(something holds the interpreter lock, or every thread is stuck) gets `STACK_SIGNAL`.  faulthandler
answers it in C and writes all threads to `stacks.txt` beside the journal.  The signal is sent only
to the very process that registered for it: it would kill any other.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from runwatch.capture import process
from runwatch.capture.process import Facts
from runwatch.capture.stack_signal import STACK_SIGNAL
from runwatch.capture.stacks import Dump, read_dumps
from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.files import journal_folder
from runwatch.identity import once_as
from runwatch.journal.liveness import PROC
from runwatch.record.stacks import Stacks, Thread

Ask = Callable[[Path, str, Mapping[str, Any], float], Mapping[str, Any]]
"""`agent.control.ask`: journal directory, kind, body, seconds; raises a RunwatchError."""

STACKS_FILE: Final = "stacks.txt"
ANSWER_SECONDS: Final = 1.0
SOON_SECONDS: Final = 0.5
"""A thread gets the interpreter lock within milliseconds, unless somebody keeps it."""
NO_TASKS: Final = "the tasks of its event loop cannot be seen from outside"
_LOOPS: Final = ("run_forever", "run_until_complete")
MAX_DUMP_BYTES: Final = 4 << 20
_POLL_SECONDS: Final = 0.01
_QUIET_SECONDS: Final = 0.5


class NotSignalled(Exception):
    """Why the signal was not sent or not answered.  Never leaves this file."""


def ask_stacks(
    journal_dir: Path,
    pid: int,
    seconds: float = 5.0,
    *,
    ask: Ask | None,
    start_ticks: int = 0,
    clock: Clock = system_clock,
    proc: Path = PROC,
) -> Stacks:
    """The stacks of `pid` as it reports them; without threads if it does not, and why.

    `ask` None: do not try the socket (it belongs to another process, the parent).
    """
    facts = process.look_up(pid, proc=proc)
    empty = Stacks(pid, clock.wall_ns(), "asked", "" if facts is None else facts.state)
    if why := _why_not(facts, pid, start_ticks):
        return empty.with_problems(why)
    assert facts is not None
    problems: list[str] = []
    # A process that does not run cannot answer: the socket would only cost time.
    if ask is not None and facts.runs:
        try:
            return _answered(ask, journal_dir, empty, min(seconds, ANSWER_SECONDS))
        except RunwatchError as error:
            problems.append(f"process {pid} gave no stacks at its control socket: {error}")
    try:
        threads = _Signalling(journal_dir, facts, seconds, clock, proc).threads()
    except NotSignalled as error:
        return empty.with_problems(*problems, str(error), *_evidence(pid, proc))
    return replace(empty, how="signalled", threads=threads).with_problems(*problems)


def runs_a_loop(stacks: Stacks) -> bool:
    """Whether one of its threads runs an asyncio event loop."""
    functions = (frame.function for thread in stacks.threads for frame in thread.frames)
    return any(function.endswith(_LOOPS) for function in functions)


def with_answer(
    seen: Stacks, ask: Callable[[str, Mapping[str, Any], float], Mapping[str, Any]], version: str
) -> tuple[Stacks, bool]:
    """Stacks seen from outside, with what only the process itself knows; and whether it answered.

    To answer, its thread needs the interpreter's lock for a moment: a process that does not answer
    does not get the lock.
    """
    try:
        answer = Stacks.of(ask(Stacks.KIND, {}, SOON_SECONDS))
    except RunwatchError as error:
        if runs_a_loop(seen):
            seen = seen.with_problems(no_tasks(seen.pid, str(error), version))
        return seen, False
    own_words = {thread.ident: thread for thread in answer.threads}
    main = next((thread for thread in answer.threads if thread.is_main), None)
    threads = []
    for thread in seen.threads:
        own = own_words.get(thread.ident, main if thread.is_main else None)
        threads.append(thread if own is None else replace(thread, tasks=own.tasks, spins=own.spins))
    return replace(seen, threads=tuple(threads)), True


def no_tasks(pid: int, why: str, version: str) -> str:
    """Why an event loop's tasks are missing.  From Python 3.14 on, an interpreter of the same
    version can read them from outside."""
    problem = f"{NO_TASKS} ({why})"
    minor = version.partition(".")[2]
    if minor.isdigit() and int(minor) < 14:
        return f"{problem}; Python {version} shows them to nobody else"
    advice = f"its own Python, if it is 3.14 or later, shows them: python -m asyncio ps {pid}"
    return f"{problem}; {advice}"


def _why_not(facts: Facts | None, pid: int, start_ticks: int) -> str:
    if facts is None:
        return f"process {pid} has ended"
    if start_ticks and facts.start_ticks != start_ticks:
        return f"process {pid} has ended; another process has its pid now"
    return process.why_silent(facts) if facts.state in process.DEAD else ""


def _answered(ask: Ask, journal_dir: Path, empty: Stacks, seconds: float) -> Stacks:
    answer = Stacks.of(ask(journal_dir, Stacks.KIND, {}, seconds))
    if not answer.threads:
        raise RunwatchError("the answer has no stacks")
    return replace(answer, how="asked", pid=empty.pid, state=empty.state)


def _evidence(pid: int, proc: Path) -> Iterator[str]:
    facts = process.look_up(pid, proc=proc)
    if facts is not None and facts.tasks:
        yield f"the kernel says: {process.evidence(facts)}"


class _Signalling:
    """One process, asked once by signal."""

    def __init__(
        self, journal_dir: Path, facts: Facts, seconds: float, clock: Clock, proc: Path
    ) -> None:
        self.journal = journal_dir
        self.path = journal_dir / STACKS_FILE
        self.facts = facts
        self.pid = facts.pid
        self.seconds = seconds
        self.clock = clock
        self.proc = proc

    def threads(self) -> tuple[Thread, ...]:
        before = self._size()
        blocking = self._blocking()
        self._send()
        self._wait(before, blocking)
        dumps = read_dumps(self._read(before))
        if not dumps:
            raise NotSignalled(f"process {self.pid} wrote something other than stacks")
        return self._named(dumps[-1])

    def _size(self) -> int:
        try:
            with journal_folder(self.journal) as folder:
                return folder.stat(STACKS_FILE).st_size
        except FileNotFoundError:
            return 0  # the process may create it when the signal comes
        except OSError as error:
            raise NotSignalled(f"cannot read {self.path}: {error.strerror}") from error

    def _send(self) -> None:
        with _same_process(self.pid, self.facts.start_ticks, self.proc) as pidfd:
            status = process.read_status(self.pid, proc=self.proc)
            if not _has(status, "SigCgt"):
                raise NotSignalled(
                    f"process {self.pid} does not catch signal {STACK_SIGNAL}, which would kill it "
                    "(RUNWATCH_STACKS=off, or it uses the signal for something else)"
                )
            # A stopped process handles no signals: one pending signal is enough.
            if not _has(status, "ShdPnd"):
                self._signal(pidfd)
        now = process.look_up(self.pid, proc=self.proc)
        if now is not None and not now.runs and (why := process.why_silent(now)):
            raise NotSignalled(f"{why}: it will write its stacks when it continues")

    def _signal(self, pidfd: int) -> None:
        """As the process's owner when we looked: the kernel checks that this is still the owner."""
        send = partial(signal.pidfd_send_signal, pidfd, STACK_SIGNAL)
        if self.facts.user is None:
            send()
        else:
            once_as(self.facts.user, send)

    def _wait(self, before: int, blocking: frozenset[int]) -> None:
        """Wait until the dump is complete.  The kernel blocks the signal in the thread that handles
        it.  So the dump is complete when the file has grown and no additional thread blocks it."""
        deadline = self.clock.mono_ns() + int(self.seconds * 1e9)
        size, since = before, self.clock.mono_ns()
        while True:
            now_size, now = self._size(), self.clock.mono_ns()
            if now_size != size:
                size, since = now_size, now
            elif size != before and (
                now - since > _QUIET_SECONDS * 1e9 or not self._blocking() - blocking
            ):
                return
            if now > deadline:
                raise NotSignalled(self._why_late())
            threading.Event().wait(_POLL_SECONDS)

    def _blocking(self) -> frozenset[int]:
        tasks = {task: f"{self.pid}/task/{task}" for task in self._task_ids()}
        return frozenset(
            task
            for task, path in tasks.items()
            if _has(process.read_status(path, proc=self.proc), "SigBlk")
        )

    def _task_ids(self) -> list[int]:
        try:
            return list(map(int, os.listdir(self.proc / str(self.pid) / "task")))
        except OSError:
            return []

    def _why_late(self) -> str:
        facts = process.look_up(self.pid, proc=self.proc)
        if facts is None or facts.state in process.DEAD:
            return f"process {self.pid} ended while we asked"
        if why := process.why_silent(facts):
            return f"{why}: it will write its stacks when it continues"
        if _has(process.read_status(self.pid, proc=self.proc), "ShdPnd"):
            return (
                f"process {self.pid} has not taken the signal within {self.seconds:g} s: "
                "all its threads block it"
            )
        return (
            f"process {self.pid} took the signal and wrote nothing to {self.path} "
            f"within {self.seconds:g} s (disk full?)"
        )

    def _read(self, before: int) -> str:
        try:
            with open(self._opened(), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                # Smaller than before: it was emptied and begun again.
                file.seek(max(before if size > before else 0, size - MAX_DUMP_BYTES))
                return file.read(MAX_DUMP_BYTES).decode(errors="replace")
        except OSError as error:
            raise NotSignalled(f"cannot read {self.path}: {error.strerror}") from error

    def _opened(self) -> int:
        """The journal's owner may have put anything in its place: a link, a pipe."""
        with journal_folder(self.journal) as folder:
            return folder.open(STACKS_FILE, owners=(folder.uid,))

    def _named(self, dump: Dump) -> tuple[Thread, ...]:
        """faulthandler writes no names before Python 3.14; we know the main thread's."""
        threads = (
            replace(thread, name="MainThread", native_id=self.pid) if thread.is_main else thread
            for thread in dump.threads
        )
        return tuple(sorted(threads, key=lambda thread: not thread.is_main))


def _has(status: Mapping[str, str], field: str) -> bool:
    return bool(process.signals(status.get(field, "")) >> (STACK_SIGNAL - 1) & 1)


@contextmanager
def _same_process(pid: int, start_ticks: int, proc: Path) -> Iterator[int]:
    """A descriptor of that very process: a later one may have its pid."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise NotSignalled(f"process {pid} has ended") from None
    except OSError as error:
        raise NotSignalled(f"cannot open process {pid}: {error.strerror}") from error
    try:
        now = process.look_up(pid, proc=proc)
        if now is None or now.start_ticks != start_ticks:
            raise NotSignalled(f"process {pid} has ended")
        yield pidfd
    except PermissionError:
        user = "?" if now is None else now.user
        raise NotSignalled(
            f"process {pid} belongs to user {user}: we may not send it a signal"
        ) from None
    except ProcessLookupError:
        raise NotSignalled(f"process {pid} has ended") from None
    finally:
        os.close(pidfd)
