"""Stacks of real processes that are stuck in real ways, from outside and by asking."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.errands.control import ask
from runwatch.capture import outside, process
from runwatch.capture.asking import ask_stacks
from runwatch.capture.outside import look
from runwatch.capture.stacks import STACK_SIGNAL
from runwatch.journal.liveness import read_stat, start_ticks
from runwatch.record.commands import StacksResult
from runwatch.record.stacks import Stacks, Thread
from runwatch.testing import until
from tests.integration import stuck

STUCK = Path(stuck.__file__)
LOOKERS = STUCK.with_name("lookers.py")
LINES = {
    found[1]: number
    for number, line in enumerate(STUCK.read_text().splitlines(), 1)
    if (found := re.search(r"# stuck: (\S+)$", line))
}
NO_PTRACE = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a stuck program and waits until it is about to be stuck."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        kind: str, *options: str, before: tuple[str, ...] = (), journal: Path = tmp_path
    ) -> subprocess.Popen[str]:
        command = [*before, sys.executable, str(STUCK), kind, str(journal), *options]
        # A session of its own, so that what it forked goes with it.
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(program)
        assert program.stdout is not None
        program.ready = program.stdout.readline().split()  # type: ignore[attr-defined]
        assert program.ready, "it ended"  # type: ignore[attr-defined]
        return program

    yield begin
    for program in started:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def seen_at(pid: int, kind: str, *, whole: bool = False, **options: Any) -> Stacks:
    """What is seen once the main thread is where the program gets stuck.

    `whole`: with all that can be seen; on a busy machine native frames may take too long.
    """
    seen: list[Stacks] = []

    def there() -> bool:
        seen.append(look(pid, **options))
        stuck = bool(seen[-1].threads) and place(seen[-1].threads[0]) == LINES[kind]
        return stuck and not (whole and seen[-1].problems)

    try:
        until(there, 60)
    except AssertionError:
        raise AssertionError(f"not at {kind}, line {LINES[kind]}: {seen[-1]}") from None
    return seen[-1]


def place(thread: Thread) -> int:
    """The line of the program that the thread is on."""
    return next((frame.line for frame in thread.frames if frame.file == str(STUCK)), 0)


def named(stacks: Stacks, name: str) -> Thread:
    return next(thread for thread in stacks.threads if thread.name == name)


@pytest.mark.parametrize("kind", ["gil", "orphan", "loop", "read_socket", "read_pipe"])
def test_the_line_is_seen_from_outside(start: Start, kind: str) -> None:
    program = start(kind)
    seen = seen_at(program.pid, kind, whole=True)
    main = seen.threads[0]
    assert seen.how == "outside" and seen.problems == ()
    assert (main.is_main, main.native_id) == (True, program.pid)
    assert main.holds_gil == (kind in ("gil", "loop"))
    assert [f.function for f in main.frames if not f.native][:1] == [kind]
    assert any(frame.native for frame in main.frames)


def test_without_native_frames(start: Start) -> None:
    program = start("read_pipe")
    for options in ({}, {"pause": False}):
        seen = seen_at(program.pid, "read_pipe", native=False, **options)
        assert seen.problems == ()
        assert [frame.function for frame in seen.threads[0].frames] == [
            "read_pipe", "main", "<module>",
        ]  # fmt: skip


def test_both_sides_of_a_deadlock(start: Start) -> None:
    program = start("deadlock")

    def both() -> bool:
        """They may get there after the main thread."""
        seen = seen_at(program.pid, "deadlock")
        found = [(place(thread), thread.idle) for thread in map(partial(named, seen), sides)]
        return found == [(LINES[f"deadlock-{side}"], True) for side in sides]

    sides = "one", "other"
    until(both)


def test_a_stopped_process_is_read_and_stays_stopped(start: Start) -> None:
    program = start("read_pipe")
    seen_at(program.pid, "read_pipe")
    program.send_signal(signal.SIGSTOP)
    until(lambda: _state(program.pid) == "T")
    seen = look(program.pid)
    assert place(seen.threads[0]) == LINES["read_pipe"]
    assert seen.state == "T" and "stopped by a signal" in seen.problems[0]
    assert _state(program.pid) == "T"
    program.send_signal(signal.SIGCONT)
    until(lambda: _state(program.pid) == "S")


def test_a_process_asleep_in_the_kernel(start: Start, tmp_path: Path) -> None:
    program = start("kernel", "signal")
    until(lambda: _state(program.pid) == "D")
    seen = look(program.pid)
    assert place(seen.threads[0]) == LINES["kernel"]
    assert seen.state == "D" and "uninterruptible sleep" in seen.problems[0]
    told = ask_stacks(tmp_path, program.pid, 0.2, ask=ask)
    assert told.threads == ()
    assert any("uninterruptible sleep" in why and "continues" in why for why in told.problems)
    os.close(os.open(tmp_path / "fifo", os.O_WRONLY))
    assert program.wait(100) == 0
    assert "kernel" in (tmp_path / "stacks.txt").read_text()


def test_a_traced_process_is_read_without_pausing_it(start: Start) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace (apt-get install strace)")
    program = start("read_pipe")
    seen_at(program.pid, "read_pipe")
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", "/dev/null", "-p", str(program.pid)], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: process.look_up(program.pid).tracer == tracer.pid)  # type: ignore[union-attr]
        seen = look(program.pid)
        assert place(seen.threads[0]) == LINES["read_pipe"]
        assert f"process {tracer.pid}" in seen.problems[0]
    finally:
        tracer.terminate()
        tracer.wait()


def test_a_looker_that_is_killed_leaves_the_process_running(start: Start) -> None:
    program = start("loop")
    spy = outside.py_spy()
    assert spy is not None
    for milliseconds in range(0, 120, 6):
        looker = subprocess.Popen(
            [spy, "dump", "--native", "--json", "--pid", str(program.pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        threading.Event().wait(milliseconds / 1000)
        looker.kill()
        looker.wait()
        before = _used(program.pid)
        until(lambda before=before: _used(program.pid) > before, what="the process to go on")
    assert _state(program.pid) == "R"


def test_a_looker_that_takes_too_long_is_given_up(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe")
    slow = _script(tmp_path, "exec sleep 600")
    seen = look(program.pid, seconds=0.3, program=slow)
    assert seen.threads == ()
    assert any("took longer than" in problem for problem in seen.problems)


def test_without_native_frames_when_they_cannot_be_unwound(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe")
    spy = outside.py_spy()
    partly = _script(
        tmp_path, 'case "$*" in *--native*) echo "Error: no unwinding" >&2; exit 1;; esac',
        f'exec {spy} "$@"',
    )  # fmt: skip
    seen = seen_at(program.pid, "read_pipe", program=partly)
    assert seen.problems == ("no native frames: no unwinding",)
    assert not any(frame.native for frame in seen.threads[0].frames)


@pytest.mark.parametrize(
    ("complaint", "why"),
    [
        ("Error: Unsupported version of Python: 3.19.0", "does not support the Python of process"),
        ("Error: Failed to find python version from target process", "is not a Python program"),
        ("", "cannot read process"),
    ],
)
def test_what_py_spy_says_is_told_in_our_words(
    start: Start, tmp_path: Path, complaint: str, why: str
) -> None:
    program = start("read_pipe")
    seen = look(program.pid, program=_script(tmp_path, f'echo "{complaint}" >&2; exit 1'))
    assert seen.threads == () and why in seen.problems[0]


def test_who_is_not_there() -> None:
    gone = subprocess.Popen(["true"])
    until(lambda: _state(gone.pid) == "Z")
    assert "zombie" in look(gone.pid).problems[0]
    gone.wait()
    assert "cannot be seen" in look(gone.pid).problems[0]
    assert look(os.getpid(), start_ticks=1).problems == (
        f"process {os.getpid()} has ended; another process has its pid now",
    )


def test_who_is_not_python() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        until(lambda: process.look_up(sleeping.pid).name == "sleep")  # type: ignore[union-attr]
        seen = look(sleeping.pid)
        sleeping.kill()
    assert seen.problems == (f"process {sleeping.pid} (sleep) is not a Python program",)


def test_without_py_spy(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe")
    seen = look(program.pid, program=str(tmp_path / "missing"))
    assert seen.threads == () and any("cannot run" in problem for problem in seen.problems)


def test_another_users_process(start: Start) -> None:
    pid = start("read_pipe").pid if os.getuid() == 0 else 1
    seen = _looker("other-user", str(pid))[0]
    assert seen.threads == ()
    assert f"process {pid} belongs to user root (0) and we run as" in seen.problems[0]
    assert "CAP_SYS_PTRACE" in seen.problems[0]


def test_where_ptrace_is_filtered_out(start: Start) -> None:
    program = start("read_pipe")
    seen_at(program.pid, "read_pipe")
    for seen in _looker("no-ptrace-call", str(program.pid)):
        assert place(seen.threads[0]) == LINES["read_pipe"]
        assert any("system call filter" in problem for problem in seen.problems)


def test_in_another_pid_namespace(start: Start, tmp_path: Path) -> None:
    inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not make PID namespaces")
    program = start("read_pipe", before=inside)
    (pid,) = process.children(program.pid)
    seen = seen_at(pid, "read_pipe")
    assert seen.threads[0].is_main
    # And the other way round: from inside, processes outside are not to be seen.
    seen = _looker("look", str(os.getpid()), before=list(inside))[0]
    assert "another PID namespace" in seen.problems[0]


# ── asking ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["orphan", "loop", "read_socket", "read_pipe", "deadlock"])
def test_a_process_answers_at_its_socket(start: Start, tmp_path: Path, kind: str) -> None:
    program = start(kind, "socket", "closed")

    def there() -> Stacks | None:
        told = ask_stacks(tmp_path, program.pid, ask=ask)
        return told if told.threads and place(told.threads[0]) == LINES[kind] else None

    told: Stacks = until(there)
    assert (told.how, told.pid, told.problems) == ("asked", program.pid, ())
    assert named(told, "runwatch-control").native_id not in (0, program.pid)


@pytest.mark.parametrize("kind", ["gil", "orphan", "loop", "read_pipe", "deadlock"])
def test_a_process_that_does_not_answer_is_sent_the_signal(
    start: Start, tmp_path: Path, kind: str
) -> None:
    options = ("signal", "socket") if kind == "gil" else ("signal",)
    program = start(kind, *options, "closed")

    def there() -> Stacks | None:
        told = ask_stacks(tmp_path, program.pid, ask=ask, start_ticks=start_ticks(program.pid) or 0)
        return told if told.threads and place(told.threads[0]) == LINES[kind] else None

    told: Stacks = until(there)
    assert told.how == "signalled"
    assert (told.threads[0].name, told.threads[0].native_id) == ("MainThread", program.pid)
    # That it did not answer is a finding of its own.
    assert "gave no stacks" in told.problems[0]
    assert program.poll() is None


def test_the_signal_is_never_sent_to_whom_it_would_kill(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe")
    told = ask_stacks(tmp_path, program.pid, ask=ask)
    assert told.threads == ()
    assert any(f"does not catch signal {STACK_SIGNAL}" in why for why in told.problems)
    assert any("the kernel says" in why for why in told.problems)
    assert program.poll() is None


def test_the_signal_is_never_sent_to_a_later_process(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe", "signal")
    told = ask_stacks(tmp_path, program.pid, ask=ask, start_ticks=1)
    assert told.problems == (f"process {program.pid} has ended; another process has its pid now",)
    assert (tmp_path / "stacks.txt").read_text() == ""


def test_a_stopped_process_dumps_once_when_it_goes_on(start: Start, tmp_path: Path) -> None:
    program = start("read_pipe", "signal")
    program.send_signal(signal.SIGSTOP)
    until(lambda: _state(program.pid) == "T")
    for _ in range(2):
        told = ask_stacks(tmp_path, program.pid, ask=ask)
        assert told.threads == () and told.state == "T"
        assert "stopped by a signal" in told.problems[0]
        assert "when it continues" in told.problems[0]
    program.send_signal(signal.SIGCONT)
    dumped = until(lambda: (tmp_path / "stacks.txt").read_text().endswith("<module>\n"))
    assert dumped
    assert (tmp_path / "stacks.txt").read_text().count("read_pipe") == 1


def test_who_has_ended_is_not_asked(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    until(lambda: _state(gone.pid) == "Z")
    assert "zombie" in ask_stacks(tmp_path, gone.pid, ask=ask).problems[0]
    gone.wait()
    assert ask_stacks(tmp_path, gone.pid, ask=ask).problems == (f"process {gone.pid} has ended",)


# ── the agent's errand ────────────────────────────────────────────────────────────────────────


def test_the_errand_tells_of_a_rank_and_its_workers(start: Start, tmp_path: Path) -> None:
    program = start("fork")
    worker = int(program.ready[1])  # type: ignore[attr-defined]
    seen_at(program.pid, "fork")
    seen_at(worker, "fork-worker")
    said = _run_looker("errand", str(tmp_path), "j", str(program.pid))
    own, forked = sorted(said["events"], key=lambda event: "child_of" in event)
    assert said["answer"] == StacksResult(processes=2, looked=2).body()
    assert {own["kind"], forked["kind"]} == {"stacks"} and own["scope"] == forked["scope"] == 7
    assert [own["pid"], forked["pid"], forked["child_of"]] == [program.pid, worker, program.pid]
    assert "child_of" not in own
    for event, line in ((own, "fork"), (forked, "fork-worker")):
        assert (event["rank"], event["host"], event["journal"]) == (3, "here", "j")
        assert (event["incident"], event["round"], event["command"]) == ("", 0, "c1")
        assert place(Stacks.of(event).threads[0]) == LINES[line]


@pytest.mark.parametrize("kind", ["gil", "read_socket", "fork"])
def test_the_errand_asks_where_it_may_not_look(start: Start, tmp_path: Path, kind: str) -> None:
    journal = tmp_path / "journals" / "j"
    journal.mkdir(parents=True)
    program = start(kind, "signal", "socket", "closed", journal=journal)
    before = NO_PTRACE if os.getuid() == 0 else []
    said: dict[str, Any] = until(
        lambda: _if_there(
            _run_looker("errand", str(tmp_path), "j", str(program.pid), before=before), kind
        )
    )
    events = sorted(said["events"], key=lambda event: "child_of" in event)
    own = Stacks.of(events[0])
    assert own.how == ("signalled" if kind == "gil" else "asked")
    assert any(problem.startswith("from outside: process") for problem in own.problems)
    if kind == "fork":
        worker = Stacks.of(events[1])
        assert (worker.how, place(worker.threads[0])) == ("signalled", LINES["fork-worker"])


def _if_there(said: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Once it, and the worker that it forked, are where they get stuck."""

    def there(event: dict[str, Any]) -> bool:
        threads = Stacks.of(event).threads
        line = LINES["fork-worker" if "child_of" in event else kind]
        return bool(threads) and place(threads[0]) == line

    return said if all(map(there, said["events"])) else None


def _looker(how: str, *rest: str, before: list[str] | None = None) -> list[Stacks]:
    return [Stacks.of(each) for each in _run_looker(how, *rest, before=before)]


def _run_looker(how: str, *rest: str, before: list[str] | None = None) -> Any:
    command = [*(before or []), sys.executable, str(LOOKERS), how, *rest]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _script(folder: Path, *lines: str) -> str:
    path = folder / "py-spy"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


def _state(pid: int) -> str:
    stat = read_stat(pid)
    return "" if stat is None else stat.state


def _used(pid: int) -> int:
    stat = read_stat(pid)
    assert stat is not None
    return stat.user_ticks
