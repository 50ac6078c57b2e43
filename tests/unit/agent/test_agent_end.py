"""The last moments of an agent that nobody needs any more, as far as it can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.agent import main as module
from runwatch.agent.lock import AgentLock, end_agents
from runwatch.agent.main import Agent, run_agent
from runwatch.agent.settings import AgentSettings
from runwatch.journal.liveness import ENDED, boot_id, start_ticks, this_host
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin


@pytest.fixture(autouse=True)
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "listen", lambda stop: stop)


def settings(root: Path) -> AgentSettings:
    return AgentSettings(dir=root, idle_seconds=0.001, period_seconds=0.05, device_hz=0.0)


def record(root: Path, journal: str) -> Path:
    """What a process leaves that began, and has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = start_ticks(process.pid) or 0
    origin = Origin(JournalId(journal), this_host(), process.pid, 1, boot_id(), ticks)
    writer = JournalWriter(root, origin)
    writer.event("run_start", {})
    writer.close()
    process.communicate(b"\n")
    return writer.directory


def test_whoever_comes_while_it_ends_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one's own agent has found the lock taken, and gone."""
    late: list[Path] = []
    end = Agent._end

    def slowly(agent: Agent) -> None:
        if not late:
            late.append(record(tmp_path, "late"))
            assert not run_agent(settings(tmp_path))
        end(agent)

    monkeypatch.setattr(Agent, "_end", slowly)
    assert run_agent(settings(tmp_path))
    assert (late[0] / ENDED).exists()
    assert not AgentLock(tmp_path, this_host()).is_held()


def test_who_is_found_dead_by_the_last_look_is_recorded(tmp_path: Path) -> None:
    """It is idle by its clock at the very look that finds the journal."""
    gone = record(tmp_path, "short")
    agent = Agent(settings(tmp_path))
    agent._busy_ns -= 10**12
    agent.run()
    assert (gone / ENDED).exists()


def test_one_that_is_told_to_stop_does_not_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Agent] = []
    end = Agent._end

    def told(agent: Agent) -> None:
        ended.append(agent)
        record(tmp_path, "late")
        agent.stop()
        end(agent)

    monkeypatch.setattr(Agent, "_end", told)
    assert run_agent(settings(tmp_path))
    assert len(ended) == 1


def test_a_lock_that_names_somebody_long_gone(tmp_path: Path) -> None:
    """Whoever has it has not written its name there yet."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        gone = process.pid
    lock = AgentLock(tmp_path, this_host())
    assert lock.acquire()
    lock.path.write_text(f'{{"pid": {gone}}}')
    end_agents(tmp_path, patience_seconds=0.05)
    assert lock.is_held()
    lock.release()
    end_agents(tmp_path)
    assert not lock.is_held() and lock.holder() == gone != os.getpid()


ASKED_TWICE = """
import os, signal, threading
from runwatch.agent.stopping import listen

class Stop(threading.Event):
    asked = 0

    def set(self):
        with self._cond:  # as the real one, and somebody is impatient in this very moment
            self.asked += 1
            if self.asked == 1:
                os.kill(os.getpid(), signal.SIGTERM)
        super().set()

stop = Stop()
listen(stop)
os.kill(os.getpid(), signal.SIGTERM)
while not (stop.wait(1) and stop.asked == 2):
    pass
"""


def test_one_that_is_told_to_stop_twice_at_once_ends() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED_TWICE], timeout=100)
    assert done.returncode == 0
