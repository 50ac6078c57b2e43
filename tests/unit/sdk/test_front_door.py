from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import runwatch
from runwatch.agent.lock import AgentLock, end_agents
from runwatch.journal.liveness import this_host
from runwatch.sdk import launch
from runwatch.sdk.guard import attempt, guarded, tally
from runwatch.sdk.run import Run
from runwatch.testing import FakeClock, until
from tests.integration.sdk_programs import run_program


def test_the_names_at_the_door() -> None:
    assert sorted(runwatch.__all__) == [
        "__version__", "begin_span", "begin_step", "config", "current_run", "data", "diagnose",
        "end_step", "finish", "init", "log", "profile", "span", "step", "steps",
    ]  # fmt: skip
    for name in runwatch.__all__:
        assert getattr(runwatch, name) is not None
        assert name in dir(runwatch)
    with pytest.raises(AttributeError, match="wandb"):
        _ = runwatch.wandb


def test_profile_is_that_of_the_run_which_is_current_when_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def profile(run: Run, **given: Any) -> Any:
        asked.append((run.name, given))
        return run.span("profiled")

    monkeypatch.setattr(Run, "profile", profile)

    @runwatch.profile(steps=3, python_calls=True)
    def work() -> int:
        return 7

    assert work() == 7  # without a run: nothing but a warning
    assert (asked, tally.counts) == ([], {"no run": 1})
    runwatch.init("first")
    assert work() == 7
    runwatch.init("second")
    with runwatch.profile(session="mine"):
        pass
    given = {"steps": None, "seconds": None, "session": None, "path": None, "frameworks": ()}
    assert asked == [
        ("first", given | {"steps": 3, "python_calls": True}),
        ("second", given | {"session": "mine"}),
    ]


def test_importing_and_using_it_loads_the_standard_library_only(tmp_path: Path) -> None:
    done = run_program(
        """
        import sys
        before = set(sys.modules)
        import runwatch
        light = set(sys.modules) - before
        from runwatch.compat.mldiagnostics import metrics
        with runwatch.init("light") as run:
            run.log(loss=1.0)
            metrics.record("loss", 1.0)
        used = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(n for n in light if n.startswith("runwatch")))
        print(sorted(used - set(sys.stdlib_module_names)))
        print(sorted(used & {"asyncio", "socketserver", "http", "subprocess", "multiprocessing"}))
        """,
        tmp_path,
    )
    assert done.stdout.splitlines() == [
        "['runwatch', 'runwatch._nothing', 'runwatch._version']",
        "['runwatch']",
        "[]",
    ]


def test_shapes_of_captures_are_loaded_only_for_a_profile(tmp_path: Path) -> None:
    """A dataclass takes a third of a millisecond to make, and most processes are never profiled."""
    done = run_program(
        """
        import sys, runwatch
        def loaded():
            names = ("captures", "commands", "control")
            return [name for name in names if f"runwatch.record.{name}" in sys.modules]
        with runwatch.init("light") as run:
            with run.step(1):
                run.log(loss=1.0)
            print(loaded())
            run.profile()
            print(loaded())
        """,
        tmp_path,
    )
    assert done.stdout.splitlines() == ["[]", "['captures', 'control']"]


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


@pytest.mark.parametrize("shell", [launch.SHELL, "/nowhere/sh"])
def test_the_agent_is_started_apart_from_us_and_collected(shell: str, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"; ls /proc/self/fd | wc -l; exit 3\n')
    program.chmod(0o700)
    before = {child.pid for child in psutil.Process().children()}
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        launch.start_agent(tmp_path, "host/1", executable=str(program), shell=shell)
    finally:
        os.close(held)
    for pid in launch._started:  # only without a shell
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    launch.reap()
    log = tmp_path / "agent" / "host-1.log"
    text = until(lambda: t if (t := log.read_text()).count("\n") == 2 else None)
    said = text.splitlines()
    command, _, asked_ns = said[0].removesuffix(" --detach").rpartition(" --asked ")
    assert command == f"-P -m runwatch.agent --dir {tmp_path}"
    assert said[0].endswith(" --detach") is (shell != launch.SHELL)
    assert 0 < int(asked_ns) <= time.time_ns()
    assert int(said[1]) == 4  # stdin, stdout, stderr and the listing's own
    assert launch._started == set()
    assert {child.pid for child in psutil.Process().children()} <= before
    assert tally.counts == ({} if shell == launch.SHELL else {"agent": 1})


def test_the_lock_is_where_the_agent_has_it(tmp_path: Path) -> None:
    for host in ("gpu-1", "../../x", "", "a" * 300, "h\u00f6st/1"):
        lock = AgentLock(tmp_path, host)
        assert not launch.has_agent(tmp_path, host)
        assert lock.acquire()
        assert launch.has_agent(tmp_path, host)
        lock.release()
        assert not launch.has_agent(tmp_path, host)


def test_an_agent_that_is_gone_is_started_again_the_less_often_the_more_often_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[float] = []
    clock = FakeClock()
    begin = clock.mono_ns()
    monkeypatch.setattr(
        launch, "start_agent", lambda *_: started.append((clock.mono_ns() - begin) / 1e9)
    )
    lock = AgentLock(tmp_path, "host")
    caretaker = launch.Caretaker(tmp_path, "host", first=True, clock=clock)
    later = launch.Caretaker(tmp_path, "host", first=False, clock=clock)
    for second in range(3000):
        if second == 1000:
            assert lock.acquire()
        if second == 1500:
            lock.release()
        if second == 2000:
            end_agents(tmp_path)
            (tmp_path / "agent" / f"{this_host()}.ended").rename(tmp_path / "agent/host.ended")
        caretaker.look()
        if second < 20:
            later.look()
        clock.advance(1.0)
    assert started == [0, 20, 60, 140, 300, 620, 1500, 1520, 1560, 1640, 1800]


def test_no_agent_where_none_can_be(tmp_path: Path) -> None:
    launch.start_agent(tmp_path, "host", executable=str(tmp_path / "nothing"))
    assert tally.counts == {"agent": 1}
    assert launch._started == set()


@pytest.mark.parametrize(("value", "wanted"), [("off", False), ("", True), ("auto", True)])
def test_the_agent_can_be_forbidden(value: str, wanted: bool) -> None:
    assert launch.wanted({"RUNWATCH_AGENT": value}) is wanted
