"""Rows in any order and in any number of pieces reduce to the same curves."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.buckets import HIGHEST, LOWEST, Grid
from runwatch.store.duck.pages import cut
from runwatch.store.duck.reduction import Columns, cells_of_points, curves
from tests.unit.store.batches import as_rows, reduced

few = settings(max_examples=150, deadline=None, derandomize=True, database=None)
values = st.one_of(
    st.integers(-50, 50).map(float), st.sampled_from([math.nan, math.inf, -math.inf])
)
rows_of = st.lists(
    st.tuples(st.sampled_from([3, 4, 9]), st.integers(0, 30), values), min_size=1, max_size=60
)

Row = tuple[int, int, int, float]


def columns(rows: list[Row]) -> Columns:
    series, time_ns, place, value = zip(*rows, strict=True)
    return {
        "series": np.array(series, np.int64),
        "time_ns": np.array(time_ns, np.int64),
        "place": np.array(place, np.int64),
        "value": np.array(value, np.float64),
    }


@few
@given(rows_of, st.integers(1, 9), st.integers(1, 4), st.randoms(use_true_random=False))
def test_any_order_and_any_pieces(
    drawn: list[tuple[int, int, float]], slice_rows: int, pieces: int, random: Random
) -> None:
    # Times are unique, places are not and go back and forth, as steps do after a restart.
    rows = [(s, 100 + i, place, value) for i, (s, place, value) in enumerate(drawn)]
    shuffled = list(rows)
    random.shuffle(shuffled)
    ids, grid = np.array([3, 4, 9], np.int64), Grid(0, 31, 4)
    for order in (sorted(rows), shuffled):
        parts = [
            cells
            for first in range(pieces)
            if (piece := order[first::pieces])
            for cells in cells_of_points(columns(piece), ids, grid, rows=slice_rows)
        ]
        found = {curve.series: as_rows(curve) for curve in curves(parts, ids, "step", grid)}
        mine = {s: [(t, p, v) for own, t, p, v in rows if own == s] for s, *_ in rows}
        assert found == {s: reduced(own, "step", 0, 31, 4) for s, own in mine.items()}


@pytest.mark.parametrize("buckets", [1, 3, 1000])
def test_the_widest_range_there_is(buckets: int) -> None:
    width = -(-(HIGHEST - LOWEST) // buckets)
    times = [LOWEST, -1, 0, HIGHEST - 1]
    rows: list[Row] = [(5, time_ns, time_ns, 1.0) for time_ns in times]
    grid = Grid(LOWEST, HIGHEST, width)
    ids = np.array([5], np.int64)
    curve = curves(list(cells_of_points(columns(rows), ids, grid)), ids, "time", grid)[0]
    places = [LOWEST + (time_ns - LOWEST) // width * width for time_ns in times]
    assert list(curve.position) == sorted(set(places))
    assert list(curve.count) == [places.count(place) for place in sorted(set(places))]


def test_values_too_large_to_add_up_are_still_finite() -> None:
    rows: list[Row] = [(5, i, i, 1.7e308) for i in range(3)]
    grid, ids = Grid(0, 3, 3), np.array([5], np.int64)
    curve = curves(list(cells_of_points(columns(rows), ids, grid)), ids, "time", grid)[0]
    assert (list(curve.count), list(curve.nonfinite), list(curve.maximum)) == ([3], [0], [1.7e308])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], []),
        ([(1, 3), (2, 3), (5, 3)], [((1, 2), 6), ((5, 5), 3)]),
        ([(1, 99), (2, 1)], [((1, 1), 99), ((2, 2), 1)]),
        ([(-4, 1), (7, 1)], [((-4, 7), 2)]),
    ],
)
def test_ranges_of_about_so_many_rows(
    counts: list[tuple[int, int]], expected: list[tuple[tuple[int, int], int]]
) -> None:
    assert cut(counts, 7) == expected
