"""What a timeline draws: metrics over time, and spans.

A band shows all series of a metric together.  Its size depends on how wide it is drawn, not on how
long or how large the run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from runwatch.buckets import Grid, steady_grid
from runwatch.errors import UsageError
from runwatch.head.http.parameters import Given, check_range
from runwatch.head.http.types import Answer, PointInfo, number
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.rows import Latest, SeriesRow
from runwatch.views.bands import About, about, band_of, paired

_NO_RUN: Final = RunId("")


class MetricInfo(Answer):
    metric: str
    unit: str
    about: About
    series: int
    """How many ranks, devices or hosts have the metric."""
    latest: PointInfo | None


class MetricList(Answer):
    run: str
    metrics: list[MetricInfo]


class BandInfo(Answer):
    """A metric over time, all its series together.  Bucket i begins at `start_ns + i * width_ns`;
    null where nothing was recorded."""

    metric: str
    unit: str
    about: About
    series: int
    start_ns: int
    width_ns: int
    minimum: list[float | None]
    maximum: list[float | None]
    mean: list[float | None]


class BandList(Answer):
    run: str
    bands: list[BandInfo]


class SpanList(Answer):
    """The steps and spans that overlap the window; each list has one entry per span.

    `complete` is false when there are more than the limit: then the lists are empty.
    A start before the window is the window's start.  A null end is after the window, or unknown.
    """

    run: str
    complete: bool
    name: list[str]
    rank: list[int]
    step: list[int | None]
    start_ns: list[int]
    end_ns: list[int | None]


# ── which series ───────────────────────────────────────────────────────────────────────────────


def _hosts(reading: Reading, run: RunId) -> frozenset[str]:
    return frozenset(row.host for row in reading.store.processes(run))


def _rows_of(reading: Reading, run: RunId, metric: str) -> list[SeriesRow]:
    """The run's own series; if it has none, the series of its hosts that belong to no run."""
    own = reading.store.series(run, metric=metric)
    if own:
        return own
    hosts = _hosts(reading, run)
    return [row for row in reading.store.series(_NO_RUN, metric=metric) if row.host in hosts]


def metrics(reading: Reading, given: Given) -> MetricList:
    run = reading.run(given["run"])
    hosts = _hosts(reading, run)
    around = (row for row in reading.store.series(_NO_RUN) if row.host in hosts)
    groups: dict[str, list[SeriesRow]] = {}
    for row in [*reading.store.series(run), *around]:
        known = groups.setdefault(row.metric, [])
        if not known or known[0].run == row.run:
            known.append(row)
    return MetricList(
        run=run, metrics=[_metric_info(reading, g) for _, g in sorted(groups.items())]
    )


def _metric_info(reading: Reading, rows: Sequence[SeriesRow]) -> MetricInfo:
    first = rows[0]
    newest = max(reading.latest(rows).values(), key=lambda point: point.time_ns, default=None)
    told = {(row.rank, row.host, row.device) for row in rows}
    return MetricInfo(
        metric=first.metric,
        unit=first.unit,
        about=about(first),
        series=len(told),
        latest=None if newest is None else _point(newest),
    )


def _point(latest: Latest) -> PointInfo:
    return PointInfo(time_ns=latest.time_ns, step=latest.step, value=number(latest.value))


# ── bands ────────────────────────────────────────────────────────────────────────


def _window(reading: Reading, run: RunId, given: Given, most: int) -> Grid:
    start, end = given["start"], given["end"]
    if start is None or end is None:
        rows = [row for row in reading.store.processes(run) if row.role != "agent"]
        start = min(row.start_ns for row in rows) if start is None else start
        end = max(row.last_ns for row in rows) + 1 if end is None else end
    if start >= end:
        raise UsageError(f"start={start} is not before end={end}; give a start before the end")
    if end - start > 2**62:
        raise UsageError(f"from {start} to {end} is longer than any run; ask for less")
    return steady_grid(start, end, most)


def bands(reading: Reading, given: Given) -> BandList:
    run = reading.run(given["run"])
    window = _window(reading, run, given, given["buckets"])
    named = {metric: _rows_of(reading, run, metric) for metric in dict.fromkeys(given["metric"])}
    return BandList(
        run=run, bands=[_band(reading, window, rows) for rows in named.values() if rows]
    )


def _band(reading: Reading, window: Grid, rows: Sequence[SeriesRow]) -> BandInfo:
    curves = reading.store.curves(
        [row.series for row in rows],
        start=window.start,
        end=window.end,
        buckets=window.buckets,
    )
    band = band_of(curves, window)
    return BandInfo(
        metric=rows[0].metric,
        unit=rows[0].unit,
        about=about(rows[0]),
        series=len({(row.rank, row.host, row.device) for row in rows}),
        start_ns=window.start,
        width_ns=window.width,
        minimum=band.minimum,
        maximum=band.maximum,
        mean=band.mean,
    )


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


def spans(reading: Reading, given: Given) -> SpanList:
    run = reading.run(given["run"])
    start, end, limit = given["start"], given["end"], given["limit"]
    check_range(given)
    ask = partial(reading.store.spans, run, start_ns=start, end_ns=end)
    edges = ask(limit=2 * limit + 1)
    if len(edges) > 2 * limit:
        return SpanList(run, False, [], [], [], [], [])
    found = paired(edges, start)
    return SpanList(
        run=run,
        complete=True,
        name=[one.row.name for one in found],
        rank=[one.row.rank for one in found],
        step=[one.row.step for one in found],
        start_ns=[one.start_ns for one in found],
        end_ns=[one.end_ns for one in found],
    )
