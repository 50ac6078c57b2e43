"""The agent that a program starts: nobody's child, and there again when it was killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runwatch.agent.lock import AgentLock, end_agents
from runwatch.journal.liveness import is_alive, this_host
from runwatch.journal.segment import Header
from runwatch.testing import read_stories, until
from tests.integration.sdk_programs import program_environment
from tests.integration.strangers import MALLORY, NO_POWER, do_as, everybodys, needs_users

_BEGIN = """
import os, sys, time
import runwatch
from runwatch.sdk import launch
launch.LOOK_SECONDS = float(os.environ["LOOK"])
run = runwatch.init("served")
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_agents(tmp_path)


def start(
    root: Path, text: str, look_seconds: float = 0.5, before: Sequence[str] = ()
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", _BEGIN + text],
        env=program_environment(root, RUNWATCH_AGENT="on", LOOK=str(look_seconds)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def agent_of(root: Path, *, other_than: int | None = None) -> int | None:
    """Its pid, once it says that it has the lock."""
    holder = AgentLock(root, this_host()).holder()
    return holder if holder != other_than and holder and _lives(holder) else None


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_program_that_waits_for_its_children_meets_none_of_ours(root: Path) -> None:
    text = """
from pathlib import Path
root = Path(os.environ["RUNWATCH_DIR"])
def children():
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
met = {children() for _ in range(100)}
deadline = time.monotonic() + 100
while not (met - {None} or list(root.glob("agent/*.lock"))):
    met.add(children())
    assert time.monotonic() < deadline
child = os.fork()
if not child:
    os._exit(7)
print(met, os.wait() == (child, 7 << 8))
run.finish()
"""
    with start(root, text, look_seconds=100) as program:
        out, _ = program.communicate(timeout=100)
    assert (out, program.returncode) == ("{None} True\n", 0)


def test_an_agent_that_was_killed_is_replaced_once(root: Path) -> None:
    with start(root, "sys.stdin.readline()\nrun.finish()\n") as program:
        first = until(lambda: agent_of(root), 60, "an agent")
        os.kill(first, signal.SIGKILL)
        second = until(lambda: agent_of(root, other_than=first), 60, "another agent")
        program.communicate("\n", timeout=60)
    assert second != first
    (journal,) = (root / "journals").glob(f"*-{program.pid}-*")
    (root / "only" / "journals").mkdir(parents=True)
    journal.rename(root / "only" / "journals" / journal.name)
    (story,) = read_stories(root / "only")
    assert story.end["status"] == "completed"
    assert is_alive(story.origin) is False
    log = (root / "agent" / f"{this_host()}.log").read_text()
    assert "Traceback" not in log


def test_agents_that_somebody_has_ended_stay_away(root: Path) -> None:
    with start(root, "sys.stdin.readline()\nrun.finish()\n") as program:
        first = until(lambda: agent_of(root), 60, "an agent")
        end_agents(root)
        until(lambda: not _lives(first), 60, "its end")
        (journal,) = (root / "journals").glob(f"*-{program.pid}-*")
        before = _heartbeat(journal)
        until(lambda: _heartbeat(journal) > before + 2_000_000_000, 60, "two rounds")
        assert agent_of(root) is None
        program.communicate("\n", timeout=60)


def _heartbeat(journal: Path) -> int:
    path = journal / "00000000.seg"
    return Header.unpack(path.read_bytes()[:128], path).heartbeat_ns


@needs_users
@pytest.mark.parametrize("before", [[], NO_POWER], ids=["root", "anybody"])
@pytest.mark.parametrize("what", ["log", "ended", "lock"])
def test_a_pipe_that_somebody_laid_holds_up_nobody(what: str, before: list[str]) -> None:
    """Opened by its name, it is waited for until somebody opens its other end."""
    text = """
seen = 0
def look(look=launch.Caretaker.look):
    global seen
    look(run._caretaker)
    seen += 1
run._caretaker.look = look
deadline = time.monotonic() + 100
while seen < 3:  # the keeper goes on
    assert time.monotonic() < deadline
    time.sleep(0.01)
run.log(loss=1.0)
print("goes on", flush=True)
sys.stdin.readline()
run.finish()
"""
    with everybodys() as shared:
        do_as(MALLORY, 'mkfifo -m 666 "$1"', shared / "agent" / f"{this_host()}.{what}")
        try:
            with start(shared, text, 0.1, before) as program:
                assert program.stdout is not None and program.stdin is not None
                try:
                    assert select.select([program.stdout], [], [], 50)[0], "it stands still"
                    assert program.stdout.readline() == "goes on\n"
                    if not before or what != "lock":  # nobody can have that lock
                        until(lambda: agent_of(shared), what="an agent")
                    program.communicate("\n", timeout=100)
                finally:
                    program.kill()
            assert program.returncode == 0
            stories = [s for s in read_stories(shared) if s.origin.role != "agent"]
            assert [story.values("loss") for story in stories] == [[1.0]]
        finally:
            end_agents(shared)
