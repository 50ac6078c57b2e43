"""Many series as one picture: rows × buckets with one number each, NaN where there is no data."""

from __future__ import annotations

from typing import Final

import numpy as np

from runwatch.buckets import Grid
from runwatch.store.duck.latest import Floats
from runwatch.store.duck.reduction import Columns
from runwatch.store.entries import Integers
from runwatch.store.store import Statistic

ROLLED: Final = {
    "mean": "total AS value, finite",
    "minimum": "minimum AS value, finite",
    "maximum": "maximum AS value, finite",
}
"""The columns needed of a roll-up's row; a row without a finite value is ignored."""


class Sheet:
    """Collects cells, in any order and any number of times."""

    def __init__(self, rows: Integers, height: int, cells: Grid, statistic: Statistic) -> None:
        self._rows = rows
        """The row of each series, by the series' rank among the keys."""
        self._shape = height, cells.buckets
        self._statistic = statistic
        size = height * cells.buckets
        start = {"mean": 0.0, "minimum": np.inf, "maximum": -np.inf}[statistic]
        self._value: Floats = np.full(size, start)
        self._count: Floats = np.zeros(size)

    def add_points(self, points: Columns) -> None:
        """From columns `rank`, `bucket` and `value`."""
        finite = np.isfinite(points["value"])
        if not finite.all():
            points = {name: column[finite] for name, column in points.items()}
        self._add(self._cells(points), points["value"], None)

    def add_rollup(self, rollups: Columns) -> None:
        """From columns `rank`, `bucket`, `value` and `finite`."""
        some = rollups["finite"] > 0
        if not some.all():
            rollups = {name: column[some] for name, column in rollups.items()}
        self._add(self._cells(rollups), rollups["value"], rollups["finite"])

    def _cells(self, columns: Columns) -> Integers:
        cells: Integers = self._rows[columns["rank"]] * self._shape[1] + columns["bucket"]
        return cells

    def _add(self, cells: Integers, value: Floats, count: Integers | None) -> None:
        size = len(self._value)
        self._count += np.bincount(cells, count, size)
        if self._statistic == "mean":
            self._value += np.bincount(cells, value, size)
        else:
            fold = np.minimum if self._statistic == "minimum" else np.maximum
            fold.at(self._value, cells, value)

    def values(self) -> Floats:
        values = self._value
        if self._statistic == "mean":
            values = values / np.maximum(self._count, 1)
        filled: Floats = np.where(self._count > 0, values, np.nan)
        return filled.reshape(self._shape)
