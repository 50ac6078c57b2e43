"""Programs in containers, as far as that matters to us: they count their processes themselves.

Their journals lie in a directory that all share.  A real pid namespace each; where none can be had
these tests are passed over, and the rules are still tested (tests/unit/agent/test_neighbours.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runwatch.capture.process import children
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.journal.liveness import this_host
from runwatch.testing import until
from runwatch.views.runs import ProcessState
from tests.integration.processes import agent_sees, end

BOX = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
PROGRAM = """
import sys, runwatch
run = runwatch.init("boxed")
for line in sys.stdin:
    run.log(step=int(line), loss=1.0)
run.finish()
"""


def _is_possible() -> bool:
    try:
        return subprocess.run([*BOX, "true"], capture_output=True, timeout=100).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not _is_possible(), reason="no pid namespace can be had here")


class Box:
    """A program in a container, or an agent."""

    def __init__(self, root: Path, host: str, *command: str, boxed: bool = True) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        ours = {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off", "RUNWATCH_HOST": host}
        self.process = subprocess.Popen(
            [*(BOX if boxed else ()), sys.executable, *command],
            env=inherited | ours,
            stdin=subprocess.PIPE,
        )

    def step(self, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n".encode())
        self.process.stdin.flush()

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(100) == 0

    @property
    def pid(self) -> int:
        """The program's, not that of what holds the box."""
        [program] = until(lambda: children(self.process.pid))
        return program

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(100)

    def close(self) -> None:
        end(self.process, signal.SIGKILL)
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def program(root: Path, host: str) -> Iterator[Box]:
    box = Box(root, host, "-c", PROGRAM)
    try:
        yield box
    finally:
        box.close()


@contextmanager
def agent(root: Path, *, boxed: bool) -> Iterator[None]:
    command = ("-m", "runwatch.agent", "--dir", str(root), "--idle", "0", "--all-hosts")
    box = Box(root, this_host(), *command, boxed=boxed)
    try:
        until(lambda: any((root / "journals").glob("*")), what="the agent to begin")
        yield
    finally:
        box.close()


class View:
    """What somebody is told who looks at the directory."""

    def __init__(self, root: Path) -> None:
        self._head = LocalHead(root, in_memory=True)
        self._reading = Reading(self._head.store, alive=self._head.alive)

    def process(self) -> ProcessState:
        self._read()
        [process] = self._reading.processes()
        return process

    def has(self, step: int) -> bool:
        self._read()
        cards = self._reading.cards(self._reading.summaries())
        return [card.summary.last_step for card in cards] == [step]

    def agent_lived_on(self, seconds: float) -> bool:
        """After the program had begun."""
        self._read()
        rows = self._head.store.processes()
        began_ns = max(row.start_ns for row in rows if row.role != "agent")
        return any(row.last_ns > began_ns + seconds * 1e9 for row in rows if row.role == "agent")

    def _read(self) -> None:
        while self._head.tail.round():
            pass

    def close(self) -> None:
        self._head.close()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = View(tmp_path)
    yield view
    view.close()


HOSTS = pytest.mark.parametrize("host", ["pod-1", this_host()])
"""A pod has a name of its own; containers of one pod, or on the host's network, share one."""


@HOSTS
def test_what_it_records_after_a_pause_is_read(tmp_path: Path, view: View, host: str) -> None:
    """By our numbers it would be dead, and its journal over."""
    with program(tmp_path, host) as box:
        for number in (1, 2):
            box.step(number)
            until(lambda step=number: view.has(step), what=f"step {number}")
        assert view.process().state == "running"
        box.finish()
        assert view.process().state == "completed"


@HOSTS
def test_an_agent_that_sees_it_tells_how_it_ended(tmp_path: Path, view: View, host: str) -> None:
    with agent(tmp_path, boxed=False), program(tmp_path, host) as box:
        box.step(1)
        until(lambda: view.has(1), what="the first step")
        until(lambda: agent_sees(tmp_path, box.pid), what="the agent to watch the program")
        assert view.process().state == "running"
        box.kill()
        until(lambda: view.process().state != "running", what="the end")
        assert view.process().reason == "killed by SIGKILL"


@HOSTS
def test_an_agent_that_does_not_see_it_says_nothing_of_it(
    tmp_path: Path, view: View, host: str
) -> None:
    """In a container of its own, where the program's number is nobody's, or somebody else's."""
    with agent(tmp_path, boxed=True), program(tmp_path, host) as box:
        box.step(1)
        until(lambda: view.has(1), what="the first step")
        until(lambda: view.agent_lived_on(3.0), what="the agent to have looked")
        assert view.process().state == "running"
        box.finish()
        assert view.process().state == "completed"


def test_its_stacks_are_taken_by_the_agent_of_its_node(tmp_path: Path, view: View) -> None:
    with agent(tmp_path, boxed=False), program(tmp_path, "pod-1") as box:
        box.step(1)
        until(lambda: view.has(1), what="the first step")
        until(lambda: agent_sees(tmp_path, box.pid), what="the agent to watch the program")
        asked = [sys.executable, "-m", "runwatch.cli", "stacks", "boxed", "--dir", str(tmp_path)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        assert "rank 0 is in <module>" in done.stdout, done
