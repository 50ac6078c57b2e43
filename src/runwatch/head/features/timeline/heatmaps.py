"""A metric of every device of a run over time, as one small picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from runwatch.errors import NotFound, UsageError
from runwatch.head.features.timeline.types import HeatmapInfo, HeatMetric, HeatMetrics, HeatRow
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.rows import SeriesRow
from runwatch.store.grid import MINUTE_NS, Grid
from runwatch.views.devices import Key, key_of, natural

Floats = npt.NDArray[np.float64]

STATISTICS: Final = ("mean", "minimum", "maximum")
MANY_POINTS: Final = 4_000_000
"""More of them than this, at one a second, are read as the minutes that are kept of them."""
PERCENT: Final = ("percent", "%")
MOST_CELLS: Final = 4_000_000
LONGEST_NS: Final = 100 * 366 * 86_400 * 10**9
_SECOND_NS: Final = 10**9


def metrics(reading: Reading, given: Given) -> HeatMetrics:
    run = reading.run(given["run"])
    found: dict[str, tuple[str, set[Key]]] = {}
    for row in reading.store.series(run):
        if row.device:
            found.setdefault(row.metric, (row.unit, set()))[1].add(key_of(row))
    return HeatMetrics(
        run=run,
        metrics=[
            HeatMetric(metric=plain(metric), unit=plain(unit), devices=len(devices))
            for metric, (unit, devices) in sorted(found.items())
        ],
    )


def heatmap(reading: Reading, given: Given) -> HeatmapInfo:
    run, metric = reading.run(given["run"]), given["metric"]
    rows = [row for row in reading.store.series(run, metric=metric) if row.device]
    if not rows:
        raise NotFound(
            f"the run has no device with a metric {metric[:80]!r}; "
            f"/api/v1/runs/{run}/heatmap/metrics lists those it has"
        )
    start, end = _range(reading, run, given)
    cells = columns(start, end, given["columns"], len(rows))
    places = _places(rows)
    _check_cells(min(len(places), given["rows"]), cells.buckets)
    groups = grouped(len(places), given["rows"])
    found = reading.store.matrix(
        {row.series: int(groups[places[key_of(row)]]) for row in rows},
        start=cells.start,
        end=cells.end,
        buckets=cells.buckets,
        statistic=given["statistic"],
    )
    scale = _scale(found, rows[0].unit)
    return HeatmapInfo(
        run=run,
        metric=plain(metric),
        unit=plain(rows[0].unit),
        statistic=given["statistic"],
        start_ns=cells.start,
        width_ns=cells.width,
        columns=cells.buckets,
        devices=len(places),
        rows=_rows(rows, places, groups),
        low=scale.low,
        high=scale.high,
        values=base64.b64encode(scale.bytes_of(found)).decode(),
    )


def _check_cells(rows: int, columns: int) -> None:
    if rows * columns > MOST_CELLS:
        raise UsageError(
            f"{rows} rows of {columns} columns are more than {MOST_CELLS} cells; ask for fewer"
        )


def _range(reading: Reading, run: RunId, given: Given) -> tuple[int, int]:
    start, end = given["start"], given["end"]
    if start is None or end is None:
        states = reading.processes(run)
        start = min(state.started_ns for state in states) if start is None else start
        end = max(start + 1, *(state.last_ns for state in states)) if end is None else end
    if not 0 < end - start <= LONGEST_NS:
        raise UsageError(
            f"[{start}, {end}) is no window for a picture: it begins before it ends, "
            "within a hundred years"
        )
    return start, end


def columns(start: int, end: int, most: int, series: int) -> Grid:
    """At most so many; of whole minutes where otherwise too much would have to be read.

    What is kept of each minute gives the exact answer then.
    """
    width = -(-(end - start) // most)
    if width >= MINUTE_NS or series * (end - start) // _SECOND_NS > MANY_POINTS:
        start = start // MINUTE_NS * MINUTE_NS
        width = -(-width // MINUTE_NS) * MINUTE_NS
        if -(-(end - start) // width) > most:
            width += MINUTE_NS
    count = -(-(end - start) // width)
    return Grid(start, start + count * width, width)


def _places(rows: Sequence[SeriesRow]) -> dict[Key, int]:
    """Devices in the order in which people count them."""
    first = {key_of(row): row for row in reversed(rows)}
    order = sorted(
        first,
        key=lambda key: (natural(key[0]), natural(_index(first[key]) or first[key].device), key[1]),
    )
    return {key: place for place, key in enumerate(order)}


def _index(row: SeriesRow) -> str:
    return row.device.removeprefix("gpu") if "mig" in row.labels else row.labels.get("index", "")


def grouped(devices: int, most: int) -> npt.NDArray[np.int64]:
    """The row of each device; rows hold as many neighbours as each other, give or take one."""
    places = np.arange(devices)
    return places if devices <= most else places * most // devices


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float | None
    high: float | None

    def bytes_of(self, found: Floats) -> bytes:
        if self.low is None or self.high is None:
            return bytes(found.size)
        width = (self.high - self.low) or 1.0
        levels = 1 + np.rint(np.clip((found - self.low) / width, 0, 1) * 254)
        return np.where(np.isnan(levels), 0, levels).astype(np.uint8).tobytes()


def _scale(found: Floats, unit: str) -> _Scale:
    """A percentage is always seen against 0 to 100, so that pictures can be compared."""
    if np.isnan(found).all():
        return _Scale(None, None)
    low, high = float(np.nanmin(found)), float(np.nanmax(found))
    if unit in PERCENT and low >= 0 and high <= 100:
        low, high = 0.0, 100.0
    return _Scale(low, high)


def _rows(
    rows: Sequence[SeriesRow], places: Mapping[Key, int], groups: npt.NDArray[np.int64]
) -> list[HeatRow]:
    newest = {places[key_of(row)]: row for row in rows}
    members: dict[int, list[SeriesRow]] = {}
    for place, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(newest[place])
    return [_row(found) for found in members.values()]


def _row(members: Sequence[SeriesRow]) -> HeatRow:
    first, last = members[0], members[-1]
    told: dict[str, Any] = {"last_host": plain(last.host), "last_device": plain(last.device)}
    return HeatRow(
        host=plain(first.host),
        device=plain(first.device),
        index=plain(_index(first)),
        rank=first.rank if first.run else None,
        devices=len(members),
        **told,
    )
