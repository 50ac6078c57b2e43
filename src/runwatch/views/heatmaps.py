"""A metric of every device over time as a picture: its rows, and the levels of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from runwatch.rows import SeriesRow
from runwatch.views.devices import Key, key_of, natural

Floats = npt.NDArray[np.float64]
PERCENT: Final = ("percent", "%")


def places_of(rows: Sequence[SeriesRow]) -> dict[Key, int]:
    """Devices in the order in which people count them."""
    first = {key_of(row): row for row in reversed(rows)}
    order = sorted(
        first,
        key=lambda key: (
            natural(key[0]),
            natural(index_of(first[key]) or first[key].device),
            key[1],
        ),
    )
    return {key: place for place, key in enumerate(order)}


def index_of(row: SeriesRow) -> str:
    return row.device.removeprefix("gpu") if "mig" in row.labels else row.labels.get("index", "")


def grouped(devices: int, most: int) -> list[int]:
    """The row of each device.  The rows hold equally many neighbours, give or take one."""
    return [place if devices <= most else place * most // devices for place in range(devices)]


@dataclass(frozen=True, slots=True)
class Scale:
    low: float | None
    high: float | None

    def levels(self, values: Floats) -> bytes:
        if self.low is None or self.high is None:
            return bytes(values.size)
        width = (self.high - self.low) or 1.0
        levels = 1 + np.rint(np.clip((values - self.low) / width, 0, 1) * 254)
        return np.where(np.isnan(levels), 0, levels).astype(np.uint8).tobytes()


def scale_of(values: Floats, unit: str) -> Scale:
    """The scale of a percentage is always 0 to 100, so that pictures can be compared."""
    if np.isnan(values).all():
        return Scale(None, None)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if unit in PERCENT and low >= 0 and high <= 100:
        low, high = 0.0, 100.0
    return Scale(low, high)
