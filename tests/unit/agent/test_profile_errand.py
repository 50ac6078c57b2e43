"""The errand `profile` without a process of a run: what it refuses, and what it finds."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.kineto import KinetoDaemon
from runwatch.agent.errands.profile import LOST, ProfileErrand, together
from runwatch.agent.listening import owners_of, ports_of
from runwatch.clock import system_clock
from runwatch.journal.liveness import start_ticks
from runwatch.record import Command
from runwatch.record.commands import CaptureResult, PreflightResult, TargetProfile

Result = CaptureResult | PreflightResult


def carried_out(root: Path, body: Mapping[str, Any], *targets: Target) -> Result:
    told: list[str] = []

    def event(kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        told.append(kind)

    context = Context(root, "node", system_clock, lambda: targets, event)
    result = ProfileErrand(KinetoDaemon(folder=root))(Command("c-1", "profile", body), context)
    assert told == [] and isinstance(result, CaptureResult | PreflightResult)
    return result


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"duration_ms": 5}, "session 'None'"),
        ({"session": "../up", "duration_ms": 5}, "no '..'"),
        ({"session": "a/b", "duration_ms": 5}, "session 'a/b'"),
        ({"session": "s"}, "duration_ms or steps"),
        ({"session": "s", "duration_ms": 10**9}, "1 to 600000"),
        ({"session": "s", "duration_ms": -5}, "duration_ms '-5'"),
        ({"session": "s", "duration_ms": True}, "duration_ms 'True'"),
        ({"session": "s", "steps": "many"}, "steps 'many'"),
        ({"session": "s", "steps": 1, "start_ns": 2**62}, "s ahead"),
        ({"session": "s", "steps": 1, "ranks": "all"}, "ranks 'all': not a list"),
        ({"session": "s", "steps": 1, "pids": [1.5]}, "pids '[1.5]'"),
        ({"session": "s", "steps": 1, "run": "../up", "plain": True}, "run '../up'"),
    ],
)
def test_what_cannot_be(tmp_path: Path, body: dict[str, Any], words: str) -> None:
    result = carried_out(tmp_path, body)
    assert result.state == "failed" and words in result.why
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_there(tmp_path: Path) -> None:
    result = carried_out(tmp_path, {"session": "s", "steps": 1, "run": "r"})
    assert result.state == "failed" and result.why.startswith("this agent knows no such process")
    result = carried_out(tmp_path, {"preflight": True, "plain": True, "pids": [os.getpid()]})
    (target,) = result.processes
    assert target.way == "" and "profiler port" in target.why
    with subprocess.Popen(["true"]) as ended:
        pass
    for body in ({"preflight": True}, {"session": "s", "duration_ms": 1000}):
        result = carried_out(tmp_path, {**body, "plain": True, "pids": [ended.pid]})
        assert (result.state, result.processes) == ("failed", ())
        assert result.why == f"no such process here: {ended.pid}"


def test_a_process_whose_socket_is_gone(tmp_path: Path) -> None:
    labels = {"rank": "2", "journal": "j"}
    (tmp_path / "journals" / "j").mkdir(parents=True)
    mine = Target(os.getpid(), 1, labels, "r", start_ticks(os.getpid()) or 0)
    result = carried_out(tmp_path, {"session": "s", "steps": 1, "run": "r"}, mine)
    (target,) = result.processes
    assert isinstance(target, TargetProfile)
    assert (target.rank, target.state, target.way) == (2, "failed", "")
    assert "serves no control socket" in target.why
    assert carried_out(tmp_path, {"preflight": True, "ranks": [0]}, mine).processes == ()


def test_ports_of_a_process() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as near,
        socket.create_server(("0.0.0.0", 0)) as anywhere,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        found = {port.number: port for port in ports_of(os.getpid())}
        numbers = [each.getsockname()[1] for each in (near, anywhere, six)]
        assert [found[number].anywhere for number in numbers] == [False, True, False]
        assert [found[number].address for number in numbers] == [
            f"127.0.0.1:{numbers[0]}", f"127.0.0.1:{numbers[1]}", f"[::1]:{numbers[2]}"
        ]  # fmt: skip
        assert owners_of(numbers[0]) == [os.getpid()]
    assert owners_of(numbers[0]) == []
    assert ports_of(2**22 + 1) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_fails_leaves_the_others() -> None:
    def fails() -> TargetProfile:
        raise KeyError("mine")

    good = TargetProfile(state="done")
    assert together([lambda: good, fails, lambda: good], LOST) == [good, LOST, good]
