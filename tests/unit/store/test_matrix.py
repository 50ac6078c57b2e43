"""Pictures of many series: each cell is what a plain loop over its points says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.errors import UsageError
from runwatch.store.store import Store
from runwatch.testing import EPOCH, SECOND, BatchWriter, Point
from tests.unit.store.conftest import Engine

MINUTE = 60 * SECOND
VALUES = st.one_of(st.integers(-5, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))
POINTS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 600), VALUES).map(
        lambda p: (p[0], EPOCH + p[1] * SECOND, None, p[2])
    ),
    max_size=60,
)


def brute(points: list[Point], row_of: dict[int, int], grid: dict[str, Any], how: str) -> Any:
    width = -(-(grid["end"] - grid["start"]) // grid["buckets"])
    columns = -(-(grid["end"] - grid["start"]) // width)
    found = np.full((max(row_of.values()) + 1, columns), np.nan)
    cells: dict[tuple[int, int], list[float]] = {}
    for series, time_ns, _, value in points:
        if series in row_of and grid["start"] <= time_ns < grid["end"] and math.isfinite(value):
            at = row_of[series], (time_ns - grid["start"]) // width
            cells.setdefault(at, []).append(value)
    fold: Any = {"mean": np.mean, "minimum": min, "maximum": max}[how]
    for at, values in cells.items():
        found[at] = fold(values)
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(POINTS, min_size=1, max_size=3),
    st.sampled_from([{1: 0, 2: 1, 3: 2}, {1: 0, 3: 1}, {1: 1, 2: 0, 3: 0}, {2: 0}]),
    st.sampled_from([(0, 600, 7), (0, 600, 10), (60, 540, 4), (37, 101, 9)]),
    st.sampled_from(["mean", "minimum", "maximum"]),
    st.booleans(),
)
def test_a_matrix_is_what_a_loop_says(
    engine: Engine,
    parts: list[list[Point]],
    row_of: dict[int, int],
    window: tuple[int, int, int],
    how: Any,
    compact: bool,
) -> None:
    store, writer = engine.fresh(), BatchWriter()
    for part in parts:
        store.write([writer.batch(part)])
        if compact:
            store.compact(force=True)
    ids = {int(row.device): row.series for row in store.series()}
    start, end, buckets = window
    grid = {"start": EPOCH + start * SECOND, "end": EPOCH + end * SECOND, "buckets": buckets}
    rows = {ids[device]: row for device, row in row_of.items()}
    found = store.matrix(rows, **grid, statistic=how)
    expected = brute([point for part in parts for point in part], row_of, grid, how)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_of_nothing_there_is_nothing(store: Store) -> None:
    found = store.matrix({}, start=EPOCH, end=EPOCH + MINUTE, buckets=6)
    assert found.shape == (0, 6)
    store.write([BatchWriter().batch([(1, EPOCH, None, 1.0)])])
    (series,) = [row.series for row in store.series() if row.device == "1"]
    later = store.matrix({series: 0}, start=EPOCH + 1, end=EPOCH + MINUTE, buckets=2)
    assert later.shape == (1, 2) and np.isnan(later).all()


@pytest.mark.parametrize("window", [(5, 5), (6, 5), (-(2**63), 2**63 - 1)])
def test_windows_that_cannot_be(store: Store, window: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="not a time range"):
        store.matrix({1: 0}, start=window[0], end=window[1], buckets=3)
