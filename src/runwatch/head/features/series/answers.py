"""Series, their newest points and their curves, as API shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from runwatch.errors import NotFound, UsageError
from runwatch.head.features.series.types import (
    CurveInfo,
    CurveList,
    LatestList,
    SeriesInfo,
    SeriesList,
)
from runwatch.head.http.parameters import Given, check_range, shortened
from runwatch.head.http.shapes import latest_infos
from runwatch.head.http.types import PointInfo, number, numbers, optional_numbers
from runwatch.head.reading import Reading
from runwatch.likeness import meant
from runwatch.record import RunId
from runwatch.rows import Curve, Latest, SeriesRow
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.series import AttemptOf, Question, attempt_of, curve_labels

MOST_CELLS: Final = 2_000_000
"""How many cells (series × buckets) one answer may hold."""


def question(given: Given) -> Question:
    return Question(
        given["metric"], given["rank"], given["host"], given["device"], given["attempt"]
    )


def exported(given: Given) -> Question:
    return replace(question(given), series=given["series"])


def series(reading: Reading, given: Given) -> SeriesList:
    id = reading.run(given["run"])
    numbers_of = reading.attempts(id)
    found = reading.series(id, question(given), numbers_of)
    page, next_offset = _page(found, given)
    latest = reading.latest(page)
    return SeriesList(
        run=id,
        series=[_series_info(row, numbers_of, latest.get(row.series)) for row in page],
        total=len(found),
        next_offset=next_offset,
    )


def _page(rows: Sequence[Any], given: Given) -> tuple[Sequence[Any], int | None]:
    offset, limit = given["offset"], given["limit"]
    end = offset + limit
    return rows[offset:end], end if end < len(rows) else None


def _series_info(row: SeriesRow, attempts: AttemptOf, latest: Latest | None) -> SeriesInfo:
    return SeriesInfo(
        series=row.series,
        metric=row.metric,
        unit=row.unit,
        rank=row.rank,
        host=row.host,
        device=row.device,
        attempt=attempt_of(row, attempts),
        labels=dict(row.labels),
        latest=None
        if latest is None
        else PointInfo(time_ns=latest.time_ns, step=latest.step, value=number(latest.value)),
    )


def check_names(reading: Reading, run: RunId, given: Given) -> None:
    """A metric or a rank that the run does not have is an error, and no empty answer."""
    for metric in given["metric"]:
        if not reading.store.series(run, metric=metric):
            known = sorted({row.metric for row in reading.store.series(run)})
            guess = meant(metric, known) or ";"
            raise NotFound(
                f"the run has no metric {shortened(metric)}{guess} /api/v1/runs/{run}/metrics "
                "lists those it has"
            )
    if not given["rank"]:
        return
    ranks = {row.rank for row in reading.store.processes(run)}
    if wrong := sorted(set(given["rank"]) - ranks):
        raise NotFound(
            f"the run has no {ranks_in_words(wrong)}; it has {ranks_in_words(ranks) or 'none'}"
        )


def latest(reading: Reading, given: Given) -> LatestList:
    id = reading.run(given["run"])
    check_names(reading, id, given)
    attempts = reading.attempts(id)
    rows = reading.series(id, question(given), attempts)
    points = reading.latest(rows)
    return LatestList(
        run=id,
        points=latest_infos(((r, points[r.series]) for r in rows if r.series in points), attempts),
    )


def curves(reading: Reading, given: Given) -> CurveList:
    id = reading.run(given["run"])
    check_range(given)
    check_names(reading, id, given)
    attempts = reading.attempts(id)
    rows = reading.series(id, question(given), attempts)
    if len(rows) * given["buckets"] > MOST_CELLS:
        raise UsageError(
            f"{len(rows)} series in {given['buckets']} buckets are more than {MOST_CELLS} cells; "
            "narrow it by rank=, host=, device= or attempt=, or ask for fewer buckets"
        )
    found = reading.store.curves(
        [row.series for row in rows],
        axis=given["axis"],
        start=given["start"],
        end=given["end"],
        buckets=given["buckets"],
    )
    by_series = {curve.series: curve for curve in found}
    labels = curve_labels(rows, attempts)
    return CurveList(
        run=id,
        axis=given["axis"],
        curves=[
            _curve_info(row, by_series[row.series], labels[row.series], attempts)
            for row in rows
            if row.series in by_series
        ],
    )


def _curve_info(row: SeriesRow, curve: Curve, label: str, attempts: AttemptOf) -> CurveInfo:
    return CurveInfo(
        series=row.series,
        label=label,
        metric=row.metric,
        unit=row.unit,
        rank=row.rank,
        host=row.host,
        device=row.device,
        attempt=attempt_of(row, attempts),
        width=curve.width,
        position=list(curve.position),
        time_ns=list(curve.time_ns),
        first=numbers(curve.first),
        last=numbers(curve.last),
        minimum=optional_numbers(curve.minimum),
        maximum=optional_numbers(curve.maximum),
        mean=optional_numbers(curve.mean),
        count=list(curve.count),
        nonfinite=list(curve.nonfinite),
    )


def run_id(reading: Reading, given: Given) -> RunId:
    check_range(given)
    run = reading.run(given["run"])
    check_names(reading, run, given)
    return run
