"""Since when a series is NaN: as found by reading it whole, however often one looks on the way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.head.tails import Tails
from runwatch.store.duck.engine import DuckStore
from runwatch.views.divergence import Tail
from tests.integration.head_history import Producer, when

NAN, INF = math.nan, math.inf
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def store() -> Iterator[DuckStore]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


def look(store: DuckStore, tails: Tails, run: str) -> Tail | None:
    rows = store.series(run)  # type: ignore[arg-type]
    latest = {point.series: point for point in store.latest([row.series for row in rows])}
    return next(iter(tails.of(rows, latest)), None)


def expected(values: list[float]) -> tuple[int, int, bool] | None:
    """First step, how many, whether a good one came before."""
    good = [step for step, value in enumerate(values) if math.isfinite(value)]
    first = good[-1] + 1 if good else 0
    return (first, len(values) - first, bool(good)) if first < len(values) else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.lists(
        st.lists(st.sampled_from([1.0, NAN, NAN, INF]), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    )
)
def test_as_if_read_whole(store: DuckStore, parts: list[list[float]]) -> None:
    run = f"run-{next(NUMBERS)}"
    producer, tails, values = Producer(store, f"j-{run}", run=run), Tails(store), list[float]()
    for part in parts:
        producer.write(
            [("loss", step, step, value) for step, value in enumerate(part, len(values))]
        )
        values += part
        found = look(store, tails, run)
        wanted = expected(values)
        if wanted is None:
            assert found is None
            continue
        assert found is not None
        first, count, good = wanted
        assert (found.step, found.points, found.after_good) == (first, count, good)
        assert found.since_ns == when(first)


def test_a_long_series(store: DuckStore) -> None:
    producer = Producer(store, "j-long", run="long")
    bad_from = 31_234
    producer.write(
        ("train/loss", step * 0.1, step, NAN if step >= bad_from else 1.0) for step in range(40_000)
    )
    found = look(store, Tails(store), "long")
    assert found is not None
    assert (found.step, found.points, found.after_good) == (bad_from, 40_000 - bad_from, True)


def test_other_metrics_are_not_looked_at(store: DuckStore) -> None:
    producer = Producer(store, "j-other", run="other")
    producer.write([("grad_norm", 1, 1, INF), ("loss_scale", 1, 1, INF), ("loss", 1, 1, 2.0)])
    assert look(store, Tails(store), "other") is None
