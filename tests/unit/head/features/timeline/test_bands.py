"""Bands must say what brute force says, and spans what the journals said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.errors import UsageError
from runwatch.head.features.timeline.bands import bands, metrics, spans
from runwatch.head.reading import Reading
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.integration.head_history import (
    Producer,
    agent,
    when,
)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None, settings=DuckSettings(threads=1))
    yield opened
    opened.close()


def ask(store: Store, answer: Any, **given: Any) -> Any:
    asked = {"run": "run-1", "start": None, "end": None, "metric": (), "buckets": 800, "limit": 100}
    return answer(Reading(store, clock=FakeClock(when(100))), asked | given)


def ranks(store: Store, *values: list[tuple[float, float]], run: str = "run-1") -> None:
    """A process for each list of (seconds, loss)."""
    for rank, points in enumerate(values):
        made = Producer(store, f"{run}-{rank}", run=run, rank=rank)
        made.write([("loss", at, 0, value) for at, value in points], [("run_start", 0, {})])


def test_a_band_is_what_all_ranks_did_together(store: Store) -> None:
    ranks(store, [(0, 1.0), (1, 3.0), (25, 7.0)], [(0.5, 5.0), (26, 9.0), (26.5, 9.0)])
    (band,) = ask(
        store, bands, metric=("loss", "loss", "none"), start=when(0), end=when(30), buckets=3
    ).bands
    assert (band.metric, band.unit, band.about, band.series) == ("loss", "u", "run", 2)
    assert (band.start_ns, band.width_ns) == (when(0), 10 * 10**9)
    assert band.minimum == [1.0, None, 7.0]
    assert band.maximum == [5.0, None, 9.0]
    assert band.mean == [3.0, None, pytest.approx(25 / 3)]


values = st.floats(-1e12, 1e12, allow_nan=False) | st.sampled_from([math.nan, math.inf])
points = st.lists(st.tuples(st.integers(0, 59_999), values), max_size=30)


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    """One store for all examples, each of which is a run of its own."""
    opened = DuckStore.open(None, settings=DuckSettings(threads=1))
    yield opened
    opened.close()


numbers = itertools.count(1)


@given(st.lists(points, min_size=1, max_size=3), st.integers(0, 50), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_any_band_is_what_brute_force_says(
    shared: Store, told: list[list[tuple[int, float]]], first: int, buckets: int
) -> None:
    run = f"example-{next(numbers)}"
    ranks(shared, *([(ms / 1000, value) for ms, value in one] for one in told), run=run)
    window = {"start": when(first), "end": when(60)}
    found = ask(shared, bands, run=run, metric=("loss",), buckets=buckets, **window)
    everything = [(when(ms / 1000), value) for one in told for ms, value in one]
    if not everything:
        assert found.bands == []
        return
    (band,) = found.bands
    for at, (low, high, mean) in enumerate(zip(band.minimum, band.maximum, band.mean, strict=True)):
        start = band.start_ns + at * band.width_ns
        inside = [
            value
            for time_ns, value in everything
            if start <= time_ns < start + band.width_ns and math.isfinite(value)
        ]
        if not inside:
            assert (low, high, mean) == (None, None, None)
            continue
        assert low == pytest.approx(min(inside), rel=1e-6)
        assert high == pytest.approx(max(inside), rel=1e-6)
        size = max(map(abs, inside))
        assert mean == pytest.approx(sum(inside) / len(inside), rel=1e-6, abs=size * 1e-6)


def test_edges_stay_where_they_are_when_the_window_moves(store: Store) -> None:
    ranks(store, [(at / 10, float(at)) for at in range(600)])
    two = [
        ask(store, bands, metric=("loss",), start=when(a), end=when(a + 20), buckets=40).bands[0]
        for a in (10, 11.3)
    ]
    assert two[0].width_ns == two[1].width_ns
    assert (two[0].start_ns - two[1].start_ns) % two[0].width_ns == 0


def test_a_host_tells_of_itself_under_no_run(store: Store) -> None:
    ranks(store, [(0, 1.0)])
    host = agent(store)
    host.write([("host_cpu_utilization_percent", 1, None, 50.0)], scope=0)
    elsewhere = agent(store, "agent-b", "host-b")
    elsewhere.write([("host_cpu_utilization_percent", 1, None, 99.0)], scope=0)
    found = {one.metric: one for one in ask(store, metrics).metrics}
    assert found["host_cpu_utilization_percent"].about == "host"
    assert found["loss"].latest.value == 1.0
    window = {"start": when(0), "end": when(10)}
    (band,) = ask(store, bands, metric=("host_cpu_utilization_percent",), buckets=1, **window).bands
    assert (band.series, band.mean) == (1, [50.0])


def test_windows_that_are_none_are_refused(store: Store) -> None:
    ranks(store, [(0, 1.0)])
    with pytest.raises(UsageError, match="is not before"):
        ask(store, bands, metric=("loss",), start=5, end=5)
    with pytest.raises(UsageError, match="longer than any run"):
        ask(store, bands, metric=("loss",), start=-(2**63), end=2**63 - 1)
    with pytest.raises(UsageError, match="is after"):
        ask(store, spans, start=6, end=5)


def test_spans_are_paired_and_cut_at_the_window(store: Store) -> None:
    made = Producer(store, "j-0")
    made.write(steps=[(0, 0, 1), (1, 1, 2.5), (2, 3, 4)])
    whole = ask(store, spans)
    assert whole.complete and whole.step == [0, 1, 2] and set(whole.name) == {"step"}
    assert whole.start_ns == [when(0), when(1), when(3)]
    assert whole.end_ns == [when(1), when(2.5), when(4)]
    part = ask(store, spans, start=when(2), end=when(3.5))
    assert list(zip(part.start_ns, part.end_ns, strict=True)) == [
        (when(2), when(2.5)),
        (when(3), None),
    ]
    assert ask(store, spans, limit=2).complete is False
