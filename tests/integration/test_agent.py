"""The agent as a process: one per node, ends when idle, samples the host and each rank."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runwatch.agent.lock import AgentLock, end_agents
from runwatch.head.main import LocalHead
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.rows import SeriesRow
from runwatch.testing import until

PROGRAM = """
import sys, runwatch
run = runwatch.init("watched")
run.log(loss=1.0)
sys.stdin.readline()
run.finish()
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_agents(tmp_path)


def environment(root: Path, **more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    return inherited | {"RUNWATCH_DIR": str(root)} | more


def start_agent(root: Path, *flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "runwatch.agent", "--dir", str(root), *flags]
    return subprocess.Popen(command, env=environment(root), stderr=subprocess.DEVNULL)


def start_program(root: Path, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment(root, **more), stdin=subprocess.PIPE
    )


def held(root: Path) -> int | None:
    """The pid of the agent that has the lock now.

    Seen from outside: who tries a lock has it for a moment, in which an agent that is just
    starting would find it taken, and end.
    """
    lock = AgentLock(root, this_host())
    holder = lock.holder()
    try:
        for file in Path(f"/proc/{holder}/fd").iterdir():
            with suppress(FileNotFoundError):
                if file.readlink() == lock.path.resolve():
                    return holder
    except OSError:  # there is no such process, or no longer
        pass
    return None


def series(root: Path, run: str) -> list[SeriesRow]:
    head = LocalHead(root)
    try:
        while head.tail.round():
            pass
        found = head.store.series(RunId(run))
        known = {point.series for point in head.store.latest([row.series for row in found])}
        return [row for row in found if row.series in known]
    finally:
        head.close()


def test_one_agent_per_node_and_the_second_ends_at_once(root: Path) -> None:
    first = start_agent(root, "--idle", "0")
    try:
        until(lambda: held(root) == first.pid, 30, "the first agent")
        said = subprocess.run(
            [sys.executable, "-m", "runwatch.cli", "agent", "--dir", str(root)],
            env=environment(root),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert said.returncode == 0
        assert "already" in said.stdout
        assert first.poll() is None
        until(lambda: any((root / "journals").glob("*/*.seg")), 30, "it to be at work")
    finally:
        end_agents(root)
        assert first.wait(100) == 0


def test_the_sdk_starts_one_and_it_ends_when_idle(root: Path) -> None:
    program = start_program(root, RUNWATCH_AGENT_IDLE="0.5")
    agent = until(lambda: held(root), 30, "the agent that the SDK starts")
    assert agent != program.pid
    program.communicate(b"go\n", timeout=100)
    until(lambda: held(root) is None, 30, "the agent to end by itself")
    until(lambda: not Path(f"/proc/{agent}").exists(), 30)
    assert any((root / "journals").glob("*/ended.json"))


def test_one_that_was_asked_for_before_all_were_ended_does_not_begin(root: Path) -> None:
    """It takes a while to begin, and whoever ends a demo does not know of it."""
    asked_ns = time.time_ns()
    end_agents(root)
    late = start_agent(root, "--idle", "0", "--asked", str(asked_ns))
    assert late.wait(100) == 0 and not (root / "journals").exists()
    wanted = start_agent(root, "--idle", "0", "--asked", str(time.time_ns()))
    until(lambda: held(root) == wanted.pid, 30, "the one that is wanted")
    end_agents(root)
    assert wanted.wait(100) == 0


def test_off_forbids_it(root: Path) -> None:
    program = start_program(root, RUNWATCH_AGENT="off")
    program.communicate(b"go\n", timeout=100)
    assert not (root / "agent").exists()


def test_the_host_and_each_rank_are_sampled(root: Path) -> None:
    agent = start_agent(root, "--idle", "0", "--period", "0.05")
    program = start_program(root, RUNWATCH_AGENT="off", RANK="3", WORLD_SIZE="8")
    try:
        wanted = {"process_cpu_percent", "process_resident_bytes"}

        def of_run() -> list[SeriesRow]:
            return [row for row in series(root, "watched") if row.metric in wanted]

        rows = until(lambda: r if len(r := of_run()) == 2 else None, 30, "the rank's numbers")
        assert {row.metric for row in rows} == wanted
        assert {row.rank for row in rows} == {3}
        of_host = {"host_memory_used_bytes", "host_cpu_utilization_percent", "agent_late_seconds"}
        until(lambda: of_host <= {row.metric for row in series(root, "")}, 30, "the host's numbers")
    finally:
        program.communicate(b"go\n", timeout=100)
        end_agents(root)
        agent.wait(100)


def test_the_launcher_of_a_command_is_not_looked_at_in_a_ranks_place(root: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "runwatch.cli", "exec", "--", sys.executable, "-c", PROGRAM],
        env=environment(root, RUNWATCH_AGENT_IDLE="0.5"),
        stdin=subprocess.PIPE,
    )
    try:
        found = until(lambda: _sampled(root, "watched"), 30, "samples of the program")
    finally:
        program.communicate(b"go\n", timeout=100)
    assert program.returncode == 0
    assert len(found) == 1, "of the program alone"
    until(lambda: held(root) is None, 30, "the agent to end by itself")
    assert len(_sampled(root, "watched")) == 1


def _sampled(root: Path, run: str) -> set[str]:
    """The pids of which something was sampled."""
    rows = [row for row in series(root, run) if row.metric == "process_resident_bytes"]
    return {row.labels["pid"] for row in rows}
