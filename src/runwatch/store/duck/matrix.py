"""Many series as one picture: rows × buckets of a single number, NaN where there is nothing."""

from __future__ import annotations

from typing import Final

import numpy as np

from runwatch.buckets import Grid
from runwatch.store.duck.latest import Floats
from runwatch.store.duck.reduction import Found
from runwatch.store.entries import Integers
from runwatch.store.store import Statistic

ROLLED: Final = {
    "mean": "total AS value, finite",
    "minimum": "minimum AS value, finite",
    "maximum": "maximum AS value, finite",
}
"""What of a roll-up's row is needed; without a finite value it counts for nothing."""


class Sheet:
    """Takes in cells, in any order and any number of times."""

    def __init__(self, rows: Integers, height: int, cells: Grid, statistic: Statistic) -> None:
        self._rows = rows
        """The row of each series, by its rank."""
        self._shape = height, cells.buckets
        self._statistic = statistic
        size = height * cells.buckets
        start = {"mean": 0.0, "minimum": np.inf, "maximum": -np.inf}[statistic]
        self._value: Floats = np.full(size, start)
        self._count: Floats = np.zeros(size)

    def add_points(self, found: Found) -> None:
        """From columns `rank`, `bucket` and `value`."""
        finite = np.isfinite(found["value"])
        if not finite.all():
            found = {name: column[finite] for name, column in found.items()}
        self._add(self._cells(found), found["value"], None)

    def add_rollup(self, found: Found) -> None:
        """From columns `rank`, `bucket`, `value` and `finite`."""
        some = found["finite"] > 0
        if not some.all():
            found = {name: column[some] for name, column in found.items()}
        self._add(self._cells(found), found["value"], found["finite"])

    def _cells(self, found: Found) -> Integers:
        cells: Integers = self._rows[found["rank"]] * self._shape[1] + found["bucket"]
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
        found = self._value
        if self._statistic == "mean":
            found = found / np.maximum(self._count, 1)
        filled: Floats = np.where(self._count > 0, found, np.nan)
        return filled.reshape(self._shape)
