"""A metric of every device of a run over time, as one small picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.buckets import heat_grid
from runwatch.errors import NotFound, UsageError
from runwatch.head.features.timeline.types import HeatmapInfo, HeatMetric, HeatMetrics, HeatRow
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.rows import SeriesRow
from runwatch.views.devices import Key, key_of
from runwatch.views.heatmaps import grouped, index_of, places_of, scale_of

STATISTICS: Final = ("mean", "minimum", "maximum")
MOST_CELLS: Final = 4_000_000
LONGEST_NS: Final = 100 * 366 * 86_400 * 10**9


def metrics(reading: Reading, given: Given) -> HeatMetrics:
    run = reading.run(given["run"])
    devices_of: dict[str, tuple[str, set[Key]]] = {}
    for row in reading.store.series(run):
        if row.device:
            devices_of.setdefault(row.metric, (row.unit, set()))[1].add(key_of(row))
    return HeatMetrics(
        run=run,
        metrics=[
            HeatMetric(metric=plain(metric), unit=plain(unit), devices=len(devices))
            for metric, (unit, devices) in sorted(devices_of.items())
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
    cells = heat_grid(start, end, given["columns"], len(rows))
    places = places_of(rows)
    _check_cells(min(len(places), given["rows"]), cells.buckets)
    groups = grouped(len(places), given["rows"])
    found = reading.store.matrix(
        {row.series: groups[places[key_of(row)]] for row in rows},
        start=cells.start,
        end=cells.end,
        buckets=cells.buckets,
        statistic=given["statistic"],
    )
    scale = scale_of(found, rows[0].unit)
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
        values=base64.b64encode(scale.levels(found)).decode(),
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


def _rows(
    rows: Sequence[SeriesRow], places: Mapping[Key, int], groups: Sequence[int]
) -> list[HeatRow]:
    newest = {places[key_of(row)]: row for row in rows}
    members: dict[int, list[SeriesRow]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(newest[place])
    return [_row(found) for found in members.values()]


def _row(members: Sequence[SeriesRow]) -> HeatRow:
    first, last = members[0], members[-1]
    told: dict[str, Any] = {"last_host": plain(last.host), "last_device": plain(last.device)}
    return HeatRow(
        host=plain(first.host),
        device=plain(first.device),
        index=plain(index_of(first)),
        rank=first.rank if first.run else None,
        devices=len(members),
        **told,
    )
