"""A program that puts itself into the background is running as long as it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import until
from tests.integration.processes import Cluster
from tests.integration.test_head_faults import ask

PROGRAM = """
import os, signal, sys, time
import runwatch
run = runwatch.init("daemon")
run.log(step=0, loss=1.0)
if os.fork():
    {leave}
os.setsid()
if os.fork():
    os._exit(0)
step = 1
while not os.path.exists(os.environ["STOP"]):
    run.log(step=step, loss=1.0)
    step += 1
    time.sleep(0.02)
{end}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    (tmp_path / "stop").touch()
    cluster.close()


@pytest.mark.parametrize(
    ("leave", "end", "state", "reason"),
    [
        ("os._exit(0)", "", "completed", ""),
        ("sys.exit(0)", "raise ValueError('bad batch 7')", "failed", "ValueError: bad batch 7"),
        ("os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "killed", "killed by SIGKILL"),
        ("sys.exit(0)", "run.finish('failed', reason='no data')", "failed", "no data"),
    ],
)
def test_it_runs_until_what_is_in_the_background_ends(
    cluster: Cluster, leave: str, end: str, state: str, reason: str
) -> None:
    stop = cluster.root / "stop"

    def told() -> dict[str, Any]:
        status, found = ask(cluster.http_port, "/api/v1/runs/daemon")
        return dict(found) if status == 200 else {"state": "", "reason": ""}

    cluster.start_head()
    cluster.start_agent()
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(leave=leave, end=end)],
        env=cluster.environment | {"STOP": str(stop)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    found = until(
        lambda: said if "in the background" in (said := told())["reason"] else None,
        what="the head to know who goes on",
    )
    assert (found["state"], found["attempts"]) == ("running", 1)
    stop.touch()

    # Its exit code may be known a moment before its last words.
    def ended() -> dict[str, Any] | None:
        said = told()
        return said if said["state"] == state and reason in said["reason"] else None

    found = until(ended, what=f"its end: {state}, {reason}")
    assert found["attempts"] == 1 and found["last_step"] > 0
