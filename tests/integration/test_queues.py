"""A job of Slurm, as far as that can be had without one: a real program and a real agent, and a
stand-in for scontrol on the agent's PATH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.lock import end_agents
from runwatch.cli.__main__ import main
from runwatch.testing import read_stories, until
from tests.integration.processes import end
from tests.integration.standins import StandIns
from tests.unit.agent.queues.test_slurm import line

SECOND = 10**9
PROGRAM = """
import sys, runwatch
run = runwatch.init("queued", id="queued")
for step in range(3):
    with run.step(step):
        pass
sys.stdin.readline()
run.finish()
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "node"
    end_agents(tmp_path / "node")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["goodput", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def watched(root: Path, there: StandIns, wanted: Callable[[], Any], **environment: str) -> Any:
    """Run the program beside an agent until it is there what is wanted."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "SLURM_"))}
    path = f"{there.bin}:{os.environ['PATH']}"
    own = inherited | {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off", "PATH": path}
    agent = subprocess.Popen(
        [sys.executable, "-m", "runwatch.agent", "--dir", str(root), "--idle", "0"], env=own
    )
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=own | environment, stdin=subprocess.PIPE
    )
    try:
        found = until(wanted, 60)
        program.communicate(b"\n")
        return found
    finally:
        for process in (program, agent):
            end(process, signal.SIGTERM)
        if program.stdin is not None:
            program.stdin.close()


def events(root: Path, kind: str) -> list[Mapping[str, Any]]:
    return [body for story in read_stories(root) for body in story.bodies(kind)]


def test_a_job_of_slurm_tells_how_long_it_was_queued(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = StandIns(tmp_path / "slurm", "scontrol", "sacct")
    now = int(time.time())
    job = line(4711, submit=now - 900, eligible=now - 600, start=now - 120)
    there.rule("scontrol", "4711", out=job)
    # Who was asked has a journal that can be read, and so has who asked.
    [told] = watched(
        root,
        there,
        lambda: there.count() and events(root, "job_queued"),
        SLURM_JOB_ID="4711",
        SLURM_PROCID="0",
    )
    assert (told["by"], told["job"]) == ("slurm", "4711")
    assert told["queued_at_ns"] == (now - 600) * SECOND
    assert len(there.calls("scontrol")) == 1
    figures = asked(capsys, "queued", "--dir", str(root))["figures"]
    assert figures["queued_ns"] == 480 * SECOND, "until it had its machines"
    assert 0 < figures["scheduling_goodput"] < 1
    assert "scheduling" not in figures["unknown"]
    assert main(["goodput", "queued", "--dir", str(root)]) == 0
    assert "in the queue" in capsys.readouterr().out


def test_what_slurm_does_not_tell_is_unknown_and_not_zero(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = StandIns(tmp_path / "slurm", "scontrol")
    there.rule("scontrol", out="slurm_load_jobs error: Invalid job id specified\n", code=1)
    watched(root, there, there.count, SLURM_JOB_ID="4711")
    assert not events(root, "job_queued")
    figures = asked(capsys, "queued", "--dir", str(root))["figures"]
    assert figures["queued_ns"] is None
    assert figures["scheduling_goodput"] is None
    assert "scheduling" in figures["unknown"]
