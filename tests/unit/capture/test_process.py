from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from runwatch.capture import process
from runwatch.capture.outside import may_look, why_refused
from runwatch.testing import until

MAIN = "12 (a (b) c) S " + " ".join(["0"] * 18) + " 77 0 0 " + " ".join(["0"] * 30)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    put(tmp_path, "12/stat", MAIN)
    put(tmp_path, "12/status", "Name:\ta\nUid:\t1000\t1000\t1000\t1000\nTracerPid:\t0\n")
    put(tmp_path, "self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n")
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_process() -> None:
    facts = process.look_up(os.getpid())
    assert facts is not None and facts.main is not None
    assert (facts.pid, facts.user, facts.tracer) == (os.getpid(), os.getuid(), 0)
    assert facts.runs and process.why_silent(facts) == "" and not facts.frozen
    own = next(t for t in facts.tasks if t.native_id == threading.get_native_id())
    assert own.state == "R" and own.syscall in ("running", "read")
    assert process.is_python(os.getpid()) is True


def test_a_sleeping_process_and_its_parent() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        try:
            until(lambda: process.look_up(sleeping.pid).name == "sleep")  # type: ignore[union-attr]
            until(lambda: process.look_up(sleeping.pid).state == "S")  # type: ignore[union-attr]
            facts = process.look_up(sleeping.pid)
            assert facts is not None
            assert sleeping.pid in process.children(os.getpid())
            assert process.is_python(sleeping.pid) is False
            assert process.evidence(facts).startswith(f"sleep {sleeping.pid}: S, ")
        finally:
            sleeping.kill()


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        ("Z", "has ended"),
        ("T", "stopped by a signal"),
        ("D", "in uninterruptible sleep in the kernel (wchan nfs_wait)"),
        ("t", "held by a debugger (process 99)"),
    ],
)
def test_why_it_is_silent(proc: Path, letter: str, why: str) -> None:
    put(proc, "12/stat", MAIN.replace(" S ", f" {letter} "))
    put(proc, "12/task/12/stat", MAIN.replace(" S ", f" {letter} "))
    put(proc, "12/task/12/wchan", "nfs_wait")
    if letter == "t":
        put(proc, "12/status", "Name:\ta\nTracerPid:\t99\n")
    facts = process.look_up(12, proc=proc)
    assert facts is not None and facts.runs == (letter == "D")
    assert facts.in_kernel == ({12} if letter == "D" else set())
    assert why in process.why_silent(facts)


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("0::/pod/7", "pod/7/cgroup.events", "populated 1\nfrozen 1\n"),
        ("5:freezer:/pod/7", "freezer/pod/7/freezer.state", "FROZEN\n"),
    ],
)
def test_a_paused_container(proc: Path, line: str, file: str, text: str) -> None:
    put(proc, "12/cgroup", line + "\n")
    put(proc, f"cgroups/{file}", text)
    facts = process.look_up(12, proc=proc, cgroups=proc / "cgroups")
    assert facts is not None and facts.frozen and not facts.runs
    assert "frozen" in process.why_silent(facts)


def test_nobody_is_there(proc: Path) -> None:
    assert process.look_up(13, proc=proc) is None
    assert "process 13 cannot be seen" in may_look(13, proc=proc)
    assert process.children(13, proc=proc) == []


# ── why the kernel refuses ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scope", "why"),
    [("1", "ptrace_scope=0"), ("2", "ptrace_scope is 2"), ("3", "and reboot")],
)
def test_the_ptrace_scope(proc: Path, scope: str, why: str) -> None:
    put(proc, "sys/kernel/yama/ptrace_scope", scope + "\n")
    assert why in why_refused(12, proc=proc)


def test_another_user(proc: Path) -> None:
    put(proc, "12/status", "Uid:\t0\t0\t0\t0\n")
    assert "belongs to user root (0) and we run as" in why_refused(12, proc=proc)


def test_a_process_with_more_rights(proc: Path) -> None:
    put(proc, "12/status", "Uid:\t1000\t1000\t1000\t1000\nCapPrm:\t0000000000000400\n")
    assert "capabilities that we do not have" in why_refused(12, proc=proc)


def test_a_security_profile(proc: Path) -> None:
    own = os.getuid()
    for name in ("12/status", "self/status"):
        put(proc, name, f"Uid:\t{own}\t{own}\t{own}\t{own}\n")
    put(proc, "sys/kernel/yama/ptrace_scope", "0\n")
    assert "security profile (seccomp, AppArmor)" in why_refused(12, proc=proc)


def test_a_process_closed_to_inspection(proc: Path) -> None:
    # Its directory belongs to somebody else than its user.
    other = os.getuid() + 1
    for name in ("12/status", "self/status"):
        put(proc, name, f"Uid:\t{other}\t{other}\t{other}\t{other}\n")
    assert "not dumpable" in why_refused(12, proc=proc)


def test_even_the_mighty_are_refused(proc: Path) -> None:
    put(proc, "self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")
    assert "although we have CAP_SYS_PTRACE" in why_refused(12, proc=proc)
    for name, namespace in (("self", "user:[1]"), ("12", "user:[2]")):
        (proc / name / "ns").mkdir()
        (proc / name / "ns/user").symlink_to(namespace)
    assert "another user namespace (user:[2], ours is user:[1])" in why_refused(12, proc=proc)
