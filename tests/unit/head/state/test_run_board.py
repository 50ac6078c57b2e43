"""The board of runs: whatever happens, it says what reading everything anew would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.errors import NotFound
from runwatch.head.reading import Reading
from runwatch.head.state.board import GoodputNote, RunBoard
from runwatch.record import JournalId, RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from tests.integration.head_history import (
    SECOND,
    START,
    Producer,
    exited,
    when,
)


class World:
    """Three runs of two processes, an agent, and a board that is told of what is stored."""

    def __init__(self) -> None:
        self.store = DuckStore.open(None)
        self.clock = FakeClock()
        self.alive: set[JournalId] = set()
        self.gone: set[JournalId] = set()
        self.reading = Reading(
            self.store, clock=self.clock, alive=lambda: self.alive, gone=lambda: self.gone
        )
        self.board = RunBoard(self.reading, told=True)
        self.agent = Producer(self.store, "agent", run="", name="", role="agent")
        self.processes: dict[str, Producer] = {}

    def process(self, run: int, rank: int) -> Producer:
        name = f"j{run}-{rank}"
        made = Producer(
            self.store, name, run=f"run-{run}", name=f"name-{run}", rank=rank, start_ns=self.now
        )
        return self.processes.setdefault(name, made)

    @property
    def now(self) -> int:
        return self.clock.now_ns

    @property
    def seconds(self) -> float:
        return (self.now - START) / SECOND

    def do(self, action: str, run: int, rank: int) -> None:
        process, at = self.process(run, rank), self.seconds
        if action == "point":
            self.board.stored([process.write([("loss", at, int(at), at)])])
        elif action == "device":
            self.board.stored([process.write([("gpu_power_watts", at, None, 1.0)], device="0")])
        elif action == "config":
            body = {"part": "user", "values": {"max_steps": int(at) + 1}}
            self.board.stored([process.write(events=[("config", at, body)])])
        elif action in ("run_start", "run_end"):
            self.board.stored([process.write(events=[(action, at, {"status": "completed"})])])
        elif action == "joined":
            self.board.stored([process.write(events=[(action, at, {"run": "run-3"})])])
        elif action == "exit":
            events = [exited(process.journal, at, code=rank)]
            self.board.stored([self.agent.write(events=events, scope=0)])
        elif action == "alive":
            self.alive ^= {JournalId(process.journal)}
        elif action == "gone":
            self.gone |= {JournalId(process.journal)}
        else:
            self.clock.now_ns += 20 * SECOND

    def told(self, board: RunBoard) -> Any:
        summaries, _ = board.summaries()
        cards = board.cards(summaries)
        return summaries, cards, [board.total_steps(summary.run) for summary in summaries]


ACTIONS = ("point", "device", "config", "run_start", "run_end", "exit", "alive", "gone", "joined")


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from([*ACTIONS, "wait", "ask"]), st.integers(1, 3), st.integers(0, 1)),
        max_size=25,
    )
)
def test_it_says_what_reading_anew_says(history: list[tuple[str, int, int]]) -> None:
    world = World()
    try:
        for action, run, rank in history:
            if action == "ask":
                assert world.told(world.board) == world.told(RunBoard(world.reading))
            else:
                world.do(action, run, rank)
        assert world.told(world.board) == world.told(RunBoard(world.reading))
        summaries = world.reading.summaries()
        assert world.board.summaries()[0] == summaries
        for card in world.board.cards(summaries):
            assert (
                world.board.card(card.summary.run) == card == world.reading.card(card.summary.run)
            )
    finally:
        world.store.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()


def test_its_state_has_another_name_when_something_changed(world: World) -> None:
    world.do("run_start", 1, 0)
    first = world.board.summaries()[1]
    assert world.board.summaries()[1] == first
    world.do("point", 1, 0)
    second = world.board.summaries()[1]
    assert second != first
    world.do("device", 1, 0)
    third = world.board.summaries()[1]
    assert third != second
    world.clock.now_ns += 60 * SECOND  # silent for too long
    fourth = world.board.summaries()[1]
    assert fourth != third and world.board.summaries()[0][0].state == "lost"
    world.board.note(RunId("run-1"), GoodputNote(when(1), 0.5, {}))
    assert world.board.summaries()[1] != fourth
    assert world.board.noted(RunId("run-1")) == GoodputNote(when(1), 0.5, {})


def test_a_run_whose_processes_went_over_to_another_leads_there(world: World) -> None:
    world.do("run_start", 1, 0)
    world.do("run_start", 3, 0)
    assert len(world.board.summaries()[0]) == 2
    world.do("joined", 1, 0)
    assert [summary.run for summary in world.board.summaries()[0]] == ["run-3"]
    assert world.reading.run("run-1") == world.reading.run("run-3") == "run-3"
    world.do("run_start", 1, 1)  # and another process stays
    assert world.reading.run("run-1") == "run-1"
    nowhere = world.process(2, 0)
    world.board.stored([nowhere.write(events=[("joined", world.seconds, {"run": "unheard-of"})])])
    for key in ("run-2", "name-2"):
        with pytest.raises(NotFound):
            world.reading.run(key)


def test_two_boards_never_name_their_states_alike(world: World) -> None:
    assert world.board.summaries()[1] != RunBoard(world.reading).summaries()[1]


def test_a_card_is_kept_while_nothing_was_stored_of_its_run(world: World) -> None:
    world.do("point", 1, 0)
    world.do("point", 2, 0)
    one, other = world.board.cards(world.board.summaries()[0])
    world.do("point", 2, 0)
    cards = {card.summary.run: card for card in world.board.cards(world.board.summaries()[0])}
    kept, fresh = (one, other) if one.summary.run == "run-1" else (other, one)
    assert cards[RunId("run-1")] is kept
    assert cards[RunId("run-2")] is not fresh
