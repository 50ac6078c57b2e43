from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import runwatch
from runwatch.sdk import launch
from runwatch.sdk.guard import attempt, guarded, tally
from tests.integration.sdk_programs import run_program


def test_the_names_at_the_door() -> None:
    assert sorted(runwatch.__all__) == [
        "__version__", "config", "current_run", "data", "diagnose", "finish", "goodput",
        "goodput_utils", "init", "log", "machinelearning_run", "metric_types", "metrics",
        "monitoring", "span", "step", "steps", "xprof",
    ]  # fmt: skip
    for name in runwatch.__all__:
        assert getattr(runwatch, name) is not None
        assert name in dir(runwatch)
    with pytest.raises(AttributeError, match="wandb"):
        _ = runwatch.wandb


def test_importing_and_using_it_loads_the_standard_library_only(tmp_path: Path) -> None:
    done = run_program(
        """
        import sys
        before = set(sys.modules)
        import runwatch
        light = set(sys.modules) - before
        with runwatch.init("light") as run:
            run.log(loss=1.0)
            runwatch.metrics.record("loss", 1.0)
        used = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(n for n in light if n.startswith("runwatch")))
        print(sorted(used - set(sys.stdlib_module_names)))
        print(sorted(used & {"asyncio", "socketserver", "http", "subprocess", "multiprocessing"}))
        """,
        tmp_path,
    )
    assert done.stdout.splitlines() == ["['runwatch', 'runwatch._nothing', 'runwatch._version']", "['runwatch']", "[]"]


def test_another_room_does_not_bring_the_sdk_along(tmp_path: Path) -> None:
    done = run_program(
        "import sys, runwatch.record; print([m for m in sys.modules if 'runwatch.sdk' in m])",
        tmp_path,
    )
    assert done.stdout == "[]\n"


def test_the_guard_counts_says_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    @guarded("do a thing")
    def fail() -> None:
        raise OSError("disk on fire")

    fail()
    fail()
    assert attempt("do a thing", 7, lambda: int("x")) == 7
    assert tally.counts == {"do a thing: OSError": 2, "do a thing: ValueError": 1}
    assert len(caplog.records) == 2
    assert "disk on fire" in caplog.records[0].getMessage()


def test_the_guard_lets_an_interrupt_through() -> None:
    @guarded("do a thing")
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_kinds_of_trouble_are_bounded() -> None:
    for i in range(500):
        tally.count(f"kind {i}")
    assert len(tally.counts) == 201
    assert tally.counts["other"] == 300


def test_the_agent_is_started_apart_from_us_and_collected(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"; ls /proc/self/fd | wc -l; exit 3\n')
    program.chmod(0o700)
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        launch.start_agent(tmp_path, "host/1", executable=str(program))
    finally:
        os.close(held)
    (pid,) = launch._started
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    launch.reap()
    said = (tmp_path / "agent" / "host-1.log").read_text().splitlines()
    command, _, asked_ns = said[0].rpartition(" --asked ")
    assert command == f"-P -m runwatch.agent --detach --dir {tmp_path}"
    assert 0 < int(asked_ns) <= time.time_ns()
    assert int(said[1]) == 4  # stdin, stdout, stderr and the listing's own
    assert launch._started == set()
    assert tally.counts == {"agent": 1}


def test_no_agent_where_none_can_be(tmp_path: Path) -> None:
    launch.start_agent(tmp_path, "host", executable=str(tmp_path / "nothing"))
    assert tally.counts == {"agent": 1}
    assert launch._started == set()


@pytest.mark.parametrize(("value", "wanted"), [("off", False), ("", True), ("auto", True)])
def test_the_agent_can_be_forbidden(value: str, wanted: bool) -> None:
    assert launch.wanted({"RUNWATCH_AGENT": value}) is wanted
