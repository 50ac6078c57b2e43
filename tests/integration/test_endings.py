"""The truth about the end: real processes that end in every way, an agent that sees it, and what
a person is told in the end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.lock import end_agents
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.testing import until
from runwatch.views.runs import ProcessState
from tests.integration.processes import agent_sees

# The program waits until the agent watches it: an end that nobody watches is the last test's.
PROGRAM = """
import os, signal, sys, time
import runwatch
run = runwatch.init("ending")
run.log(loss=1.0)
sys.stdin.readline()
{ending}
"""


def environment(root: Path, agent: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    return inherited | {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": agent}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_agents(tmp_path)


def outcome(root: Path) -> ProcessState:
    head = LocalHead(root)
    try:
        while head.tail.round():
            pass
        [process] = Reading(head.store, alive=head.alive).processes(RunId("ending"))
        return process
    finally:
        head.close()


def start(root: Path, ending: str, agent: str = "on") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(ending=textwrap.dedent(ending))],
        env=environment(root, agent),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def go_on(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.write(b"go\n")
    program.stdin.flush()


def end_noted(root: Path) -> bool:
    return any((root / "journals").glob("*/ended.json"))


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("run.finish()", {"state": "completed"}),
        ("pass", {"state": "completed", "exit_code": 0}),
        ("raise ValueError('bad batch 7')", {"state": "failed", "exit_code": 1}),
        ("sys.exit(3)", {"state": "failed", "exit_code": 3}),
        ("raise SystemExit(4)", {"state": "failed", "exit_code": 4}),
        ("os._exit(7)", {"state": "failed", "exit_code": 7}),
        ("os._exit(0)", {"state": "completed", "exit_code": 0}),
        ("os.kill(os.getpid(), signal.SIGKILL)", {"state": "killed", "signal": "SIGKILL"}),
        ("os.kill(os.getpid(), signal.SIGTERM)", {"state": "killed", "signal": "SIGTERM"}),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", {"state": "killed"}),
        ("import ctypes; ctypes.string_at(0)", {"state": "killed", "signal": "SIGSEGV"}),
        ("os.abort()", {"state": "killed", "signal": "SIGABRT"}),
    ],
)
def test_a_process_ends(root: Path, ending: str, expected: dict[str, Any]) -> None:
    program = start(root, ending)
    until(lambda: agent_sees(root, program.pid), 30, "the agent to watch the program")
    go_on(program)
    # Not reaped before: older kernels tell how a process ended only of one that was not.
    until(lambda: end_noted(root), 30, "the agent to record the end")
    program.communicate(timeout=100)
    found = outcome(root)
    assert {name: getattr(found, name) for name in expected} == expected, found
    if "ValueError" in ending:
        assert "ValueError: bad batch 7" in found.reason
    if expected.get("signal"):
        assert expected["signal"] in found.reason


def test_a_process_that_nobody_watched_and_that_said_nothing_is_lost(root: Path) -> None:
    program = start(root, "os.kill(os.getpid(), signal.SIGKILL)", agent="off")
    program.communicate(b"go\n", timeout=100)
    head = LocalHead(root)
    try:
        while head.tail.round():
            pass
        [process] = Reading(head.store, alive=head.alive, gone=head.tail.gone).processes()
        assert (process.state, process.reason) == ("lost", "ended without a word; cause unknown")
        [process] = Reading(head.store, alive=head.alive, alive_window_s=0.0).processes()
        assert process.state == "lost"
        assert "silent since" in process.reason
    finally:
        head.close()


def test_a_process_that_runs_is_running_however_long_it_says_nothing(root: Path) -> None:
    program = start(root, "pass", agent="off")
    try:
        until(lambda: any((root / "journals").glob("*/*.seg")), 30, "the journal")
        head = LocalHead(root)
        try:
            until(lambda: head.tail.round() == 0 and head.store.processes())
            [process] = Reading(head.store, alive=head.alive, alive_window_s=0.0).processes()
            assert process.state == "running"
        finally:
            head.close()
    finally:
        program.communicate(b"go\n", timeout=100)
