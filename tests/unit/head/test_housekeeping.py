"""Putting in order what is stored: it survives failures, and does not believe every clock."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from runwatch.errors import StoreDamaged
from runwatch.head import ingest as module
from runwatch.head.ingest import Ingest
from runwatch.head.main import LocalHead
from runwatch.head.steady import ABSENT_SECONDS, JUMP_SECONDS, WAIT_SECONDS, SteadyClock
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Retention
from runwatch.testing import BatchWriter, FakeClock, ramp, until
from tests.fuzz.world import World

DAY = 86_400 * 10**9


@dataclass
class IllStore:
    """A real store whose compaction fails as often as told, and counts what was asked of it."""

    inner: DuckStore = field(default_factory=lambda: DuckStore.open(None))
    failures: float = 0
    asked: list[str] = field(default_factory=list)

    def compact(self, *, force: bool = False) -> int:
        self.asked.append("compact")
        if self.failures > 0:
            self.failures -= 1
            raise StoreDamaged("the disk is ill")
        return self.inner.compact(force=force)

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
        until(lambda: "retain" in store.asked, what="the next tries")
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


def test_health_says_what_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_SECONDS", 0.01)
    head = LocalHead(tmp_path)
    ill = IllStore(cast(DuckStore, head.ingest.store), failures=math.inf)
    head.ingest.store = ill
    world = World(head)

    def health() -> dict[str, Any]:
        return dict(json.loads(world.ask("/api/v1/health")[1]))

    try:
        until(lambda: health()["status"] == "degraded", what="health to say it")
        assert "the disk is ill" in health()["problem"]
        ill.failures = 0
        head.ingest.keep_soon()
        until(lambda: health()["status"] == "ok", what="health to say that it is over")
    finally:
        world.close()
        head.close()


def test_points_that_came_a_minute_ago_outlive_a_jump_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_SECONDS", 0.01)
    clock = FakeClock()
    store = IllStore(DuckStore.open(tmp_path, clock=clock))
    ingest = Ingest(store, retention=Retention(), clock=clock)

    def keep_twice() -> None:
        count = store.asked.count("compact")
        until(lambda: store.asked.count("compact") > count + 1, what="two rounds of housekeeping")

    try:
        store.inner.write([BatchWriter().batch(ramp(100, start=clock.wall))])
        store.inner.compact(force=True)
        keep_twice()
        clock.wall += 100 * DAY
        keep_twice()
        [series] = [row.series for row in store.inner.series() if row.device == "1"]
        assert sum(len(part.value) for part in store.inner.points([series])) == 100
    finally:
        ingest.close()
        store.inner.close()


def test_nothing_is_deleted_for_a_day_after_the_clock_jumped(store: IllStore) -> None:
    clock = FakeClock()
    ingest = Ingest(store, retention=Retention(), clock=clock)
    try:
        ingest._keep_once(30)
        assert store.asked == ["compact", "retain"]
        clock.wall += 100 * DAY
        for _ in range(3):
            ingest._keep_once(30)
            clock.advance(WAIT_SECONDS / 4)
        assert store.asked.count("retain") == 1
        assert "+100.0 days" in ingest.steady.why
        clock.advance(WAIT_SECONDS / 2)
        ingest._keep_once(30)
        assert store.asked.count("retain") == 2
    finally:
        ingest.close()


def test_a_clock_that_is_set_right_again_is_a_jump_as_well() -> None:
    clock = FakeClock()
    steady = SteadyClock(clock)
    assert steady.is_steady(None)
    clock.advance(3600)
    assert steady.is_steady(None)
    clock.wall += int((JUMP_SECONDS - 60) * 1e9)
    assert steady.is_steady(None)
    clock.wall -= 2 * DAY
    assert not steady.is_steady(None)
    assert "-2.0 days" in steady.why


@pytest.mark.parametrize(("seconds", "steady"), [(0, True), (ABSENT_SECONDS + 60, False)])
def test_after_a_long_absence_the_clock_is_watched_first(seconds: float, steady: bool) -> None:
    clock = FakeClock()
    looking = SteadyClock(clock)
    assert looking.is_steady(clock.wall - int(seconds * 1e9)) is steady
    clock.advance(WAIT_SECONDS)
    assert looking.is_steady(clock.wall)
