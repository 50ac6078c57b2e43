"""Starting and stopping sessions over a real store: in force when it is durable, and still there
when the store is opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.errors import NotFound, StoreBusy
from runwatch.head.ingest import Ingest
from runwatch.head.state.sessions import SessionActive, SessionDefaults, Sessions
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from runwatch.views.sessions import BadName, Stretch
from tests.unit.head.session_world import (
    SECOND,
    START,
)


class Desk:
    def __init__(self, root: Path, clock: FakeClock) -> None:
        self.store = DuckStore.open(root)
        self.ingest = Ingest(self.store)
        self.clock = clock
        self.sessions = Sessions(
            self.store, self.ingest, defaults=SessionDefaults(SECOND // 2), clock=clock
        )

    def close(self) -> None:
        self.ingest.close()
        self.store.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def desk(tmp_path: Path, clock: FakeClock) -> Iterator[Desk]:
    opened = Desk(tmp_path, clock)
    yield opened
    opened.close()


def test_a_session_lasts_from_start_to_stop(desk: Desk, clock: FakeClock) -> None:
    begun = desk.sessions.start("a", ["gpu_memory"])
    assert (begun.name, begun.is_active, begun.period_ns) == ("a", True, SECOND // 2)
    assert begun.metrics == ("gpu_memory",)
    clock.now_ns += 5 * SECOND
    [ended] = desk.sessions.stop("a")
    assert ended.stretches == (Stretch(START, START + 5 * SECOND),)
    assert desk.sessions.active() == []


def test_what_cannot_be(desk: Desk) -> None:
    desk.sessions.start("a")
    with pytest.raises(SessionActive, match="already active"):
        desk.sessions.start("a")
    with pytest.raises(BadName):
        desk.sessions.start("../a")
    with pytest.raises(NotFound):
        desk.sessions.find("b")
    assert desk.sessions.stop("b") == []
    assert [session.name for session in desk.sessions.all()] == ["a"]


def test_several_at_once_and_stop_all(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.sessions.start(name)
    assert [session.name for session in desk.sessions.stop("b")] == ["b"]
    assert [session.name for session in desk.sessions.stop()] == ["a", "c"]
    assert len({session.id for session in desk.sessions.all()}) == 3


def test_names_are_made_from_the_time_and_differ(desk: Desk) -> None:
    names = [desk.sessions.start().name for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("profiling_") for name in names)


def test_it_is_all_there_when_the_store_is_opened_again(tmp_path: Path, clock: FakeClock) -> None:
    first = Desk(tmp_path, clock)
    first.sessions.start("stopped")
    clock.now_ns += SECOND
    first.sessions.stop("stopped")
    first.sessions.start("going")
    first.sessions.hear_clocks({"n": 600 * SECOND})
    told = first.sessions.all()
    first.close()
    second = Desk(tmp_path, clock)
    try:
        assert second.sessions.all() == told
        clock.now_ns += SECOND
        second.sessions.stop()
        again = second.sessions.resume("stopped")
        assert again.stretches == (Stretch(START, START + SECOND), Stretch(START + 2 * SECOND))
    finally:
        second.close()


def test_clocks_are_noted_once(desk: Desk) -> None:
    desk.sessions.hear_clocks({"n": 600 * SECOND})
    desk.sessions.start("a")
    for ahead in (600 * SECOND, 600 * SECOND + 1000):
        desk.sessions.hear_clocks({"n": ahead, "right": 1000})
    assert desk.sessions.find("a").clocks == {"n": 600 * SECOND}
    assert len(desk.store.events(None, kinds=["session_clock"])) == 1


def test_without_an_ingest_it_is_only_read(desk: Desk) -> None:
    desk.sessions.start("a")
    reader = Sessions(desk.store)
    assert [session.name for session in reader.active()] == ["a"]
    with pytest.raises(StoreBusy):
        reader.stop("a")
