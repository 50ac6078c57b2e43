"""What a program said last is at the head, though its agent ends with it.

A container ends with its first process: here the agent is killed in the program's very last moment,
by a handler that was registered before the run, and so comes after all of ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import until
from tests import tokens
from tests.integration.processes import Cluster

PROGRAM = """
import atexit, json, multiprocessing, os, signal, sys
from pathlib import Path

def kill_agent():
    [lock] = Path(os.environ["RUNWATCH_DIR"]).glob("agent/*.lock")
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)

def work(steps):
    import runwatch
    run = runwatch.init("farewell")
    for step in range(steps):
        run.log(step=step, loss=1.0)
    return run

if __name__ == "__main__":
    atexit.register(kill_agent)
{ending}
"""


class Site(Cluster):
    def run(self, ending: str) -> subprocess.CompletedProcess[str]:
        """The program with an agent of its own, to its end."""
        named = {"RUNWATCH_AGENT": "on", "RUNWATCH_HEAD": f"127.0.0.1:{self.grpc_port}"}
        program = self.root / "program.py"
        program.write_text(PROGRAM.format(ending=textwrap.indent(ending, "    ")))
        return subprocess.run(
            [sys.executable, str(program)],
            env=self.environment | named,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def told(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.http_port}/api/v1/runs/farewell"
        with tokens.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.parametrize(
    ("ending", "state", "code"),
    [
        ("work(500)", "completed", 0),
        ("work(500); raise ValueError('bad batch 7')", "failed", 1),
        ("work(500); os.kill(os.getpid(), signal.SIGINT)", "killed", -signal.SIGINT),
        ("work(500).finish()", "completed", 0),
        (
            "p = multiprocessing.get_context('spawn').Process(target=work, args=(500,))\n"
            "p.start(); p.join()",
            "completed",
            0,
        ),
    ],
)
def test_all_of_it_is_there(site: Site, ending: str, state: str, code: int) -> None:
    """The program lives for a moment: the agent has hardly begun."""
    site.start_head()
    done = site.run(ending)
    assert done.returncode == code, done
    found = site.told()
    assert (found["state"], found["last_step"]) == (state, 499), found
    if "ValueError" in ending:
        assert "ValueError: bad batch 7" in found["reason"]
        assert "ValueError: bad batch 7" in done.stderr


def test_an_agent_that_was_killed_has_a_successor_that_sends_it(site: Site) -> None:
    """Else the program would wait for longer than it is waited for here, and for nothing.

    It is killed as soon as it has come, and may not be dead yet when it is first looked for.
    """
    site.start_head()
    done = site.run(
        "import time\n"
        "from runwatch.journal.liveness import this_host\n"
        "from runwatch.journal.stored import has_head\n"
        "from runwatch.sdk.farewell import wait\n"
        "wait.__wrapped__.__defaults__ = (120,)  # seconds\n"
        "run = work(500)\n"
        "deadline = time.monotonic() + 100\n"
        "while not has_head(Path(os.environ['RUNWATCH_DIR']), this_host()):\n"
        "    assert time.monotonic() < deadline\n"
        "    time.sleep(0.05)\n"
        "run.log(step=499, last=3.0)\n"
        "kill_agent()\n"
        "run.finish()\n"
    )
    assert done.returncode == 0, done
    found = site.told()
    assert (found["state"], found["last_step"]) == ("completed", 499), found


def test_a_head_that_is_away_is_not_waited_for(site: Site) -> None:
    """The agent says so.  Else this program would wait for longer than it is waited for here."""
    done = site.run(
        "from runwatch.sdk.farewell import wait\n"
        "wait.__wrapped__.__defaults__ = (120,)  # seconds\n"
        "work(500)"
    )
    assert done.returncode == 0, done
    [journal] = [d for d in (site.node_root / "journals").iterdir() if not _is_agent(d)]
    assert not (journal / "stored").exists()
    until(lambda: not _agents(site.node_root), what="the agent to be gone")


def _is_agent(journal: Path) -> bool:
    from runwatch.journal.reader import read_origin

    origin = read_origin(journal)
    return origin is not None and origin.role == "agent"


def _agents(root: Path) -> list[int]:
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit()
        and str(root).encode() in _command(name)
        and b"runwatch.agent" in _command(name)
    ]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
