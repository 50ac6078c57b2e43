"""Every stored point is taken once, and those of all series in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.exports.gauges import Gauge, packages
from runwatch.head.forward.cursor import CursorFile
from runwatch.head.telemetry import backlog as backlog_module
from runwatch.head.telemetry.backlog import Backlog
from runwatch.head.telemetry.pulse import Kept
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.integration.head_history import Producer, when

HOUR = 3600.0


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


def backlog(store: Store, path: Path, clock: FakeClock, hours: float = 24.0) -> Backlog:
    file = CursorFile(path / "places.json")
    return Backlog(store, file, backlog_seconds=hours * HOUR, clock=clock)


def drained(of: Backlog) -> list[list[Gauge]]:
    taken = []
    while gauges := of.take():
        of.sent(gauges)
        taken.append(gauges)
    return taken


def points(taken: list[list[Gauge]]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for gauges in taken:
        for gauge in gauges:
            key = gauge.name, gauge.labels.get("rank", "")
            found.setdefault(key, []).extend(zip(gauge.time_ns, gauge.value, strict=True))
    return found


def ramp(
    metric: str, first: int, end: int, pace: float = 1.0
) -> list[tuple[str, float, int, float]]:
    return [(metric, n * pace, n, float(n)) for n in range(first, end)]


@pytest.mark.parametrize("page_points", [7, 250_000])
def test_all_series_come_together_in_the_order_of_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_points: int
) -> None:
    """A database that has points of now refuses those of an hour ago."""
    monkeypatch.setattr(backlog_module, "PAGE_POINTS", page_points)
    monkeypatch.setattr(backlog_module, "AT_ONCE", 2)
    mine = backlog(store, tmp_path, FakeClock(when(-1)))
    for rank in range(3):
        process = Producer(store, f"j{rank}", rank=rank)
        mine.stored([process.write([*ramp("loss", 0, 40, 60), *ramp("rare", 0, 3, 700)])])
    taken = drained(mine)
    found = points(taken)
    assert {key: len(rows) for key, rows in found.items()} == {
        (metric, rank): count
        for metric, count in (("loss", 40), ("rare", 3))
        for rank in ("0", "1", "2")
    }
    assert all(rows == sorted(set(rows)) for rows in found.values())
    reached = 0
    for gauges in taken:
        oldest = min(gauge.time_ns[0] for gauge in gauges)
        assert oldest > reached - backlog_module.WINDOW_NS
        reached = max(reached, *(gauge.time_ns[-1] for gauge in gauges))


def test_what_comes_late_or_in_between_is_not_missed(store: Store, tmp_path: Path) -> None:
    clock = FakeClock(when(0))
    mine = backlog(store, tmp_path, clock)
    quick, late = Producer(store, "j0"), Producer(store, "j1", rank=1)
    mine.stored([quick.write(ramp("loss", 1, 50))])
    held = mine.take()  # not sent yet, when more comes
    mine.stored([quick.write(ramp("loss", 50, 60)), late.write(ramp("loss", 1, 60))])
    rest = drained(mine)
    mine.sent(held)
    assert points([held, *rest]) == {
        ("loss", rank): [(when(n), float(n)) for n in range(1, 60)] for rank in ("0", "1")
    }
    mine.stored([late.write(ramp("loss", 60, 61))])
    assert points(drained(mine)) == {("loss", "1"): [(when(60), 60.0)]}
    assert mine.take() == [] and mine.waits_since_ns() is None


def test_what_was_before_the_first_start_and_what_is_too_old_is_passed_over(
    store: Store, tmp_path: Path
) -> None:
    clock = FakeClock(when(10))
    process = Producer(store, "j0")
    process.write(ramp("loss", 0, 11))
    mine = backlog(store, tmp_path, clock, hours=1)
    assert mine.take() == []
    mine.stored([process.write(ramp("loss", 11, 20))])
    clock.now_ns = when(15 + HOUR)  # an hour has gone by, and nobody took anything
    [[gauge]] = drained(mine)
    assert gauge.value == [16.0, 17.0, 18.0, 19.0]


def test_the_next_head_goes_on_where_the_last_one_was(store: Store, tmp_path: Path) -> None:
    clock = FakeClock(when(0))
    process = Producer(store, "j0")
    first = backlog(store, tmp_path, clock)
    first.stored([process.write(ramp("loss", 1, 5))])
    drained(first)
    first.stored([process.write(ramp("loss", 5, 9))])
    first.take()  # and it is killed before they are sent
    first.save(4, 0)
    process.write(ramp("loss", 9, 12))
    second = backlog(store, tmp_path, clock)
    assert (second.sent_before, second.lost_before) == (4, 0)
    assert points(drained(second)) == {("loss", "0"): [(when(n), float(n)) for n in range(5, 12)]}


def test_a_run_that_has_ended_says_so_once_after_its_last_point(
    store: Store, tmp_path: Path
) -> None:
    mine = backlog(store, tmp_path, FakeClock(when(0)))
    process = Producer(store, "j0")
    mine.stored([process.write([*ramp("loss", 1, 5), *ramp("lr", 1, 3)])])
    Producer(store, "j1", run="run-2", name="other").write(ramp("loss", 1, 5))
    drained(mine)
    assert {(g.name, g.time_ns[0], g.ends) for g in mine.endings(RunId("run-1"))} == {
        ("loss", when(4) + 10**6, True),
        ("lr", when(2) + 10**6, True),
    }


def test_packages_are_full_and_keep_the_order() -> None:
    gauges = [Gauge(str(n), {}, list(range(n)), [float(n)] * n) for n in (3, 1, 7)]
    found = list(packages(gauges, 4))
    assert [[(g.name, list(g.time_ns)) for g in package] for package in found] == [
        [("3", [0, 1, 2]), ("1", [0])],
        [("7", [0, 1, 2, 3])],
        [("7", [4, 5, 6])],
    ]


def test_of_a_receiver_that_is_away_for_long_the_oldest_states_are_given_up() -> None:
    kept = Kept(most=5)
    for at_ns in range(4):
        kept.put([Gauge("run_state", {"state": s}, [at_ns], [1.0]) for s in ("a", "b")])
    assert kept.given_up == 4 and kept.since_ns == 2
    assert [gauge.time_ns[0] for gauge in kept.take(2)] == [2, 2]
    assert [gauge.time_ns[0] for gauge in kept.take(99)] == [3, 3]
    assert kept.take(99) == [] and kept.since_ns is None
