from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.journal.liveness import boot_id, is_alive, read_stat, start_ticks
from runwatch.record import JournalId, Origin

CAPTURED = Path(__file__).parents[2] / "fixtures" / "proc" / "first"
BOOT = "8e4944f8-f60e-4f91-961c-9b2b600da1bd"
ORIGIN = Origin(JournalId("j"), "node", 4242, 0, BOOT, 299942)


def ask(origin: Origin, **options: object) -> bool | None:
    return is_alive(origin, proc=CAPTURED, host="node", **options)  # type: ignore[arg-type]


def test_the_captured_process() -> None:
    stat = read_stat(4242, proc=CAPTURED)  # its name holds spaces and parentheses
    assert stat is not None
    assert (stat.state, stat.user_ticks, stat.system_ticks) == ("R", 95, 1)
    assert (stat.threads, stat.start_ticks, stat.resident_pages) == (2, 299942, 10044)
    assert start_ticks(4242, proc=CAPTURED) == 299942
    assert start_ticks(1, proc=CAPTURED) is None
    assert boot_id(CAPTURED) == BOOT


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"process_start_ticks": 0}, True),
        ({"boot": ""}, True),
        ({"pid": 4243}, False),
        ({"process_start_ticks": 299943}, False),
        ({"boot": "another"}, False),
        ({"boot": "", "process_start_ticks": 0}, None),
        ({"boot": "", "process_start_ticks": 0, "pid": 4243}, False),
        ({"host": "elsewhere"}, None),
        ({"host": "elsewhere", "boot": "another"}, None),
        ({"pid": 0}, None),
    ],
)
def test_alive_dead_or_unknown(change: dict[str, object], expected: bool | None) -> None:
    assert ask(replace(ORIGIN, **change)) is expected  # type: ignore[arg-type]


def test_without_proc_nothing_can_be_told(tmp_path: Path) -> None:
    assert is_alive(ORIGIN, proc=tmp_path, host="node") is None
    assert boot_id(tmp_path) == ""


@pytest.mark.parametrize("state", "ZX")
def test_a_zombie_is_dead(tmp_path: Path, state: str) -> None:
    proc = tmp_path / "proc"
    shutil.copytree(CAPTURED, proc)
    path = proc / "4242" / "stat"
    path.write_text(path.read_text().replace(") R ", f") {state} "))
    assert is_alive(ORIGIN, proc=proc, host="node") is False


def of_process(pid: int) -> Origin:
    ticks = start_ticks(pid)
    assert ticks is not None
    return Origin(JournalId("j"), socket.gethostname(), pid, 0, boot_id(), ticks)


def test_real_processes() -> None:
    assert is_alive(of_process(os.getpid())) is True
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    origin = of_process(child.pid)
    assert is_alive(origin) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(origin) is False  # not yet reaped: a zombie
    child.communicate()
    assert is_alive(origin) is False
