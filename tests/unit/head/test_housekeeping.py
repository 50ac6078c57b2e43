"""Putting in order what is stored: it survives failures, and does not believe every clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runwatch.errors import StoreDamaged
from runwatch.head import ingest as module
from runwatch.head.ingest import Ingest
from runwatch.head.main import LocalHead
from runwatch.head.steady import ABSENT_SECONDS, JUMP_SECONDS, WAIT_SECONDS, SteadyClock
from runwatch.store.duck import DuckStore
from runwatch.store.store import Retention
from tests.fuzz.world import World
from tests.integration.processes import until

DAY = 86_400 * 10**9


@dataclass
class TwoClocks:
    """One on the wall, which anybody sets, and one that only counts."""

    wall: int = 20_000 * DAY
    mono: int = DAY

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(0)

    def go_on(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.mono += int(seconds * 1e9)


@dataclass
class IllStore:
    """A real store whose compaction fails as often as told, and counts what was asked of it."""

    inner: DuckStore = field(default_factory=lambda: DuckStore.open(None))
    failures: int = 0
    asked: list[str] = field(default_factory=list)

    def compact(self) -> int:
        self.asked.append("compact")
        if self.failures:
            self.failures -= 1
            raise StoreDamaged("the disk is ill")
        return self.inner.compact()

    def retain(self, retention: Retention, *, now_ns: int) -> dict[str, Any]:
        self.asked.append("retain")
        return self.inner.retain(retention, now_ns=now_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def store() -> Iterator[IllStore]:
    made = IllStore()
    yield made
    made.inner.close()


def test_a_compaction_that_fails_is_tried_again(
    store: IllStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_SECONDS", 0.01)
    store.failures = 3
    ingest = Ingest(store, retention=Retention())
    try:
        until(lambda: "the disk is ill" in ingest.neglected, 20, "the failure to be told")
        until(lambda: "retain" in store.asked, 20, "the next tries")
        until(lambda: not ingest.neglected, 20, "the end of it to be told")
        assert store.asked[:5] == ["compact"] * 4 + ["retain"]
    finally:
        ingest.close()


def test_pauses_grow(store: IllStore) -> None:
    store.failures = 9
    ingest = Ingest(store)
    try:
        pauses = [30.0]
        for _ in range(9):
            pauses.append(ingest._keep_once(pauses[-1]))
        assert pauses[1:] == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
        assert ingest._keep_once(pauses[-1]) == 30
    finally:
        ingest.close()


def test_health_says_what_is_not_done(tmp_path: Path) -> None:
    head = LocalHead(tmp_path)
    world = World(head)
    try:
        assert b'"status":"ok"' in world.ask("/api/v1/health")[1]
        head.ingest.neglected = "what is stored is not put in order: the disk is ill"
        status, body = world.ask("/api/v1/health")
        assert status == 200 and b'"status":"degraded"' in body and b"the disk is ill" in body
    finally:
        world.close()
        head.close()


def test_nothing_is_deleted_for_a_day_after_the_clock_jumped(store: IllStore) -> None:
    clock = TwoClocks()
    ingest = Ingest(store, retention=Retention(), clock=clock)
    try:
        ingest._keep_once(30)
        assert store.asked == ["compact", "retain"]
        clock.wall += 100 * DAY
        for _ in range(3):
            ingest._keep_once(30)
            clock.go_on(WAIT_SECONDS / 4)
        assert store.asked.count("retain") == 1
        assert "+100.0 days" in ingest.steady.why
        clock.go_on(WAIT_SECONDS / 2)
        ingest._keep_once(30)
        assert store.asked.count("retain") == 2
    finally:
        ingest.close()


def test_a_clock_that_is_set_right_again_is_a_jump_as_well() -> None:
    clock = TwoClocks()
    steady = SteadyClock(clock)
    assert steady.is_steady(None)
    clock.go_on(3600)
    assert steady.is_steady(None)
    clock.wall += int((JUMP_SECONDS - 60) * 1e9)
    assert steady.is_steady(None)
    clock.wall -= 2 * DAY
    assert not steady.is_steady(None)
    assert "-2.0 days" in steady.why


@pytest.mark.parametrize(("seconds", "steady"), [(0, True), (ABSENT_SECONDS + 60, False)])
def test_after_a_long_absence_the_clock_is_watched_first(seconds: float, steady: bool) -> None:
    clock = TwoClocks()
    looking = SteadyClock(clock)
    assert looking.is_steady(clock.wall - int(seconds * 1e9)) is steady
    clock.go_on(WAIT_SECONDS)
    assert looking.is_steady(clock.wall)
