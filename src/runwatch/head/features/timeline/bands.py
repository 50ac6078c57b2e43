"""What a timeline draws: metrics over time, and spans.

A band is what all series of a metric did together, however many ranks there are; its size depends
on how wide it is drawn, not on how long or how large the run is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from runwatch.errors import UsageError
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import Answer, PointInfo, number
from runwatch.head.reading import Reading
from runwatch.record import BEGIN, RunId
from runwatch.rows import Curve, Latest, SeriesRow, SpanRow
from runwatch.store.grid import MINUTE_NS

About = Literal["run", "process", "device", "host"]
"""Whose numbers they are: what the program logged, or what was seen of it and around it."""

Floats = npt.NDArray[np.float64]
_DIGITS: Final = 7
_NO_RUN: Final = RunId("")


class MetricInfo(Answer):
    metric: str
    unit: str
    about: About
    series: int
    """How many ranks, devices or hosts have it."""
    latest: PointInfo | None


class MetricList(Answer):
    run: str
    metrics: list[MetricInfo]


class BandInfo(Answer):
    """Bucket i begins at `start_ns + i * width_ns`; null where nothing was recorded."""

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
    """Spans of which something lies in the window, one entry each; a step is one, too.

    `complete` is false when there are more than were asked for: then there are none here.
    An end that is null lies after the window, or never came; a begin before it is the window's.
    """

    run: str
    complete: bool
    name: list[str]
    rank: list[int]
    step: list[int | None]
    start_ns: list[int]
    end_ns: list[int | None]


# ── which series ───────────────────────────────────────────────────────────────────────────────


def about(row: SeriesRow) -> About:
    if row.metric.startswith("host_"):
        return "host"
    if row.device:
        return "device"
    return "process" if row.metric.startswith("process_") else "run"


def _hosts(reading: Reading, run: RunId) -> frozenset[str]:
    return frozenset(row.host for row in reading.store.processes(run))


def _rows_of(reading: Reading, run: RunId, metric: str) -> list[SeriesRow]:
    """The run's own; where it has none, what nobody's series tell of the hosts that it is on."""
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


class _Window:
    """Buckets whose edges stay where they are when the window moves."""

    def __init__(self, start_ns: int, end_ns: int, most: int) -> None:
        width = max(-(-(end_ns - start_ns) // most), 1)
        if width >= MINUTE_NS:  # then roll-ups of whole minutes give the exact answer
            width = -(-width // MINUTE_NS) * MINUTE_NS
        self.start_ns = start_ns // width * width
        self.width_ns = width
        self.buckets = max(-(-(end_ns - self.start_ns) // width), 1)
        self.end_ns = self.start_ns + width * self.buckets

    def places(self, curve: Curve) -> npt.NDArray[np.int64]:
        position = np.asarray(curve.position, np.int64)
        return (position - self.start_ns) // self.width_ns

    def curves(self, reading: Reading, rows: Iterable[SeriesRow]) -> list[Curve]:
        return reading.store.curves(
            [row.series for row in rows],
            start=self.start_ns,
            end=self.end_ns,
            buckets=self.buckets,
        )


def _window(reading: Reading, run: RunId, given: Given, most: int) -> _Window:
    start, end = given["start"], given["end"]
    if start is None or end is None:
        rows = [row for row in reading.store.processes(run) if row.role != "agent"]
        start = min(row.start_ns for row in rows) if start is None else start
        end = max(row.last_ns for row in rows) + 1 if end is None else end
    if start >= end:
        raise UsageError(f"start={start} is not before end={end}; the range is from start to end")
    if end - start > 2**62:
        raise UsageError(f"from {start} to {end} is longer than any run; ask for less")
    return _Window(start, end, most)


def bands(reading: Reading, given: Given) -> BandList:
    run = reading.run(given["run"])
    window = _window(reading, run, given, given["buckets"])
    named = {metric: _rows_of(reading, run, metric) for metric in dict.fromkeys(given["metric"])}
    return BandList(
        run=run, bands=[_band(reading, window, rows) for rows in named.values() if rows]
    )


def _band(reading: Reading, window: _Window, rows: Sequence[SeriesRow]) -> BandInfo:
    low, high, total, count = (np.zeros(window.buckets) for _ in range(4))
    low += np.inf
    high -= np.inf
    for curve in window.curves(reading, rows):
        at, points = window.places(curve), np.asarray(curve.count, np.float64)
        some = points > 0
        at, points = at[some], points[some]
        np.minimum.at(low, at, _floats(curve.minimum)[some])
        np.maximum.at(high, at, _floats(curve.maximum)[some])
        total[at] += _floats(curve.mean)[some] * points
        count[at] += points
    absent = count == 0
    mean = total / np.maximum(count, 1)
    return BandInfo(
        metric=rows[0].metric,
        unit=rows[0].unit,
        about=about(rows[0]),
        series=len({(row.rank, row.host, row.device) for row in rows}),
        start_ns=window.start_ns,
        width_ns=window.width_ns,
        minimum=_listed(low, absent),
        maximum=_listed(high, absent),
        mean=_listed(mean, absent),
    )


def _floats(values: Sequence[float | None]) -> Floats:
    if isinstance(values, array):
        return np.frombuffer(values, np.float64)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _listed(values: Floats, absent: npt.NDArray[np.bool_]) -> list[float | None]:
    """Rounded to what can be seen: it makes the answer half as long."""
    sizes = np.abs(np.where(absent | (values == 0), 1.0, values))
    places = _DIGITS - 1 - np.floor(np.log10(sizes))
    scale = 10.0 ** np.clip(places, -300, 300)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.where(places > 300, values, np.round(values * scale) / scale)
    rounded = np.where(np.isfinite(rounded), rounded, values)
    return [
        None if gone else value
        for value, gone in zip(rounded.tolist(), absent.tolist(), strict=True)
    ]


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


def spans(reading: Reading, given: Given) -> SpanList:
    run = reading.run(given["run"])
    start, end, limit = given["start"], given["end"], given["limit"]
    if start is not None and end is not None and start > end:
        raise UsageError(f"start={start} is after end={end}; the range is from start up to end")
    ask = partial(reading.store.spans, run, start_ns=start, end_ns=end)
    edges = ask(limit=2 * limit + 1)
    if len(edges) > 2 * limit:
        return SpanList(run, False, [], [], [], [], [])
    found = _paired(edges, start)
    return SpanList(
        run=run,
        complete=True,
        name=[one.name for one, _, _ in found],
        rank=[one.rank for one, _, _ in found],
        step=[one.step for one, _, _ in found],
        start_ns=[begin for _, begin, _ in found],
        end_ns=[finish for _, _, finish in found],
    )


_Paired = tuple[SpanRow, int, int | None]


def _paired(edges: Iterable[SpanRow], start_ns: int | None) -> list[_Paired]:
    begun: dict[tuple[str, str, int], SpanRow] = {}
    found: list[_Paired] = []
    for edge in edges:
        key = edge.journal, edge.name, edge.span
        if edge.edge == BEGIN:
            begun[key] = edge
        elif (begin := begun.pop(key, None)) is not None:
            found.append((begin, begin.time_ns, edge.time_ns))
        elif start_ns is not None:
            found.append((edge, start_ns, edge.time_ns))
    found += [(begin, begin.time_ns, None) for begin in begun.values()]
    return sorted(found, key=lambda one: (one[1], one[0].rank))
