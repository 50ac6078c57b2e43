"""When a process that ends waits for its last words to be sent, and when it does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from runwatch.agent.lock import AgentLock
from runwatch.journal.liveness import this_host
from runwatch.journal.stored import has_head, note_head, note_stored, stored_in
from runwatch.record import Position
from runwatch.sdk import farewell, launch
from runwatch.sdk.guard import tally

END = Position((3 << 32) + 500)
TOO_LONG = 100


class Sleeper:
    """What happens while the process waits; after a few looks it has waited for too long."""

    def __init__(self) -> None:
        self.looks = 0
        self.then: dict[int, Callable[[], None]] = {}

    def __call__(self, seconds: float) -> None:
        self.looks += 1
        assert self.looks < TOO_LONG, "it waits and waits"
        self.then.get(self.looks, lambda: None)()


@pytest.fixture(autouse=True)
def nothing_expected() -> Iterator[None]:
    """Runs that ended in this process before have left word of themselves."""
    tally.forget()
    farewell._forget()
    yield
    farewell._forget()
    tally.forget()


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    sleeper = Sleeper()
    monkeypatch.setattr(time, "sleep", sleeper)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setenv("RUNWATCH_HEAD", "head-1:8090")
    monkeypatch.delenv("RUNWATCH_AGENT", raising=False)
    return sleeper


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    monkeypatch.setattr(launch, "start_agent", lambda root, host: found.append(root))
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentLock]:
    lock = AgentLock(tmp_path, this_host())
    assert lock.acquire()
    yield lock
    lock.release()


@pytest.fixture
def journal(tmp_path: Path, agent: AgentLock) -> Path:
    """Of a process with an agent."""
    journal = tmp_path / "journals" / "mine"
    journal.mkdir(parents=True)
    farewell.expect(journal, END, ask_for_agent=True)
    return journal


def waited(sleeper: Sleeper) -> int:
    farewell.wait()
    assert not tally.counts, tally.counts
    assert not farewell._unsent
    return sleeper.looks


def test_it_waits_until_all_of_it_is_stored(journal: Path, sleeper: Sleeper) -> None:
    for look, more in enumerate((-1000, -1, 0), 1):
        reached = Position(END + more)
        sleeper.then[look] = partial(note_stored, journal, reached, exactly=True)
    assert waited(sleeper) == 3
    assert waited(sleeper) == 3  # once


def test_what_a_head_has_already_is_not_waited_for(journal: Path, sleeper: Sleeper) -> None:
    note_stored(journal, Position(4 << 32))
    assert waited(sleeper) == 0


def test_a_journal_that_was_removed_is_not_waited_for(journal: Path, sleeper: Sleeper) -> None:
    journal.rmdir()
    assert waited(sleeper) == 0


def test_of_many_runs_those_are_remembered_that_are_not_stored_yet(journal: Path) -> None:
    others = [journal.with_name(f"run {number}") for number in range(3)]
    for other in others:
        other.mkdir()
        farewell.expect(other, END, ask_for_agent=False)
        note_stored(other, END, exactly=True)
    farewell.expect(journal, END, ask_for_agent=False)
    assert list(farewell._unsent) == [journal]


def test_a_head_that_is_away_is_not_waited_for(journal: Path, sleeper: Sleeper) -> None:
    root = journal.parents[1]
    sleeper.then[4] = lambda: note_head(root, this_host(), False)
    assert waited(sleeper) == 4
    assert has_head(root, this_host()) is False


def test_without_a_head_there_is_nobody_to_wait_for(
    journal: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNWATCH_HEAD")
    assert waited(sleeper) == 0


def test_a_head_that_only_the_agent_knows_of(
    journal: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named in config.toml."""
    monkeypatch.delenv("RUNWATCH_HEAD")
    note_head(journal.parents[1], this_host(), True)
    sleeper.then[2] = lambda: note_stored(journal, END, exactly=True)
    assert waited(sleeper) == 2


def test_without_an_agent_nothing_is_sent(
    journal: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_AGENT", "off")
    assert waited(sleeper) == 0


def test_an_agent_that_did_not_start_is_not_waited_for(journal: Path, sleeper: Sleeper) -> None:
    tally.count("agent", "the agent did not start")
    farewell.wait()
    assert sleeper.looks == 0


def test_an_agent_that_is_there_is_not_asked_for(
    journal: Path, sleeper: Sleeper, started: list[Path]
) -> None:
    sleeper.then[1] = lambda: note_stored(journal, END, exactly=True)
    assert waited(sleeper) == 1
    assert started == []


def test_who_never_had_an_agent_or_has_none_any_more_asks_for_one(
    journal: Path, sleeper: Sleeper, agent: AgentLock, started: list[Path]
) -> None:
    agent.release()
    sleeper.then[1] = lambda: note_stored(journal, END, exactly=True)
    assert waited(sleeper) == 1
    assert started == [journal.parents[1]]


def test_patience_has_an_end(
    journal: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: float(sleeper.looks))
    assert waited(sleeper) == farewell.PATIENCE_SECONDS


def test_somebody_in_a_hurry(journal: Path, sleeper: Sleeper) -> None:
    def ctrl_c() -> None:
        raise KeyboardInterrupt

    sleeper.then[2] = ctrl_c
    assert waited(sleeper) == 2


def test_a_forked_child_does_not_wait_for_its_parent_s(journal: Path, sleeper: Sleeper) -> None:
    child = os.fork()
    if not child:
        farewell.wait()
        os._exit(sleeper.looks)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_notes_are_exact_where_somebody_waits(journal: Path) -> None:
    first, next_one = Position((1 << 32) + 7), Position((1 << 32) + 9)
    note_stored(journal, first)
    note_stored(journal, next_one)
    assert stored_in(journal) == first
    note_stored(journal, next_one, exactly=True)
    assert stored_in(journal) == next_one
    note_stored(journal, Position(2 << 32))
    assert stored_in(journal) == 2 << 32


def test_what_is_known_of_the_head(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    for there in (None, True, False, True, None):
        note_head(tmp_path, "../odd host", there)
        assert has_head(tmp_path, "../odd host") is there
    assert list((tmp_path / "agent").iterdir()) == []
