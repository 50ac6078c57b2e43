"""Views as API shapes: one function per route, asking `Reading` and no one else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from runwatch._version import __version__
from runwatch.errors import UsageError
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import (
    AsideInfo,
    AttemptInfo,
    ConfigsInfo,
    CurveInfo,
    CurveList,
    EventInfo,
    EventList,
    HeadlineInfo,
    Health,
    LatestInfo,
    LatestList,
    PointInfo,
    ProcessCounts,
    ProcessInfo,
    ProcessList,
    RunDetail,
    RunInfo,
    SeriesInfo,
    SeriesList,
    number,
    numbers,
    optional_numbers,
    plain,
)
from runwatch.head.reading import Card, LeftAlone, Reading
from runwatch.record import RunId
from runwatch.rows import Curve, EventRow, Latest, SeriesRow
from runwatch.views.runs import (
    AttemptSummary,
    ProcessState,
    State,
    runs_of,
    summarise_attempts,
)
from runwatch.views.series import AttemptOf, Question, attempt_of, curve_labels

MOST_EVENT_BYTES: Final = 16 << 20
"""Of bodies, in one answer: each may be half a megabyte."""
MOST_CELLS: Final = 2_000_000
"""Series × buckets that one answer may hold."""


def health(reading: Reading, given: Given) -> Health:
    found, standing = reading.store.health(), reading.standing()
    problem = found.problem or standing.problem
    return Health(
        status="degraded" if problem else "ok",
        version=__version__,
        engine=found.engine,
        schema_version=found.schema_version,
        hot_points=found.hot_points,
        blocks=found.blocks,
        bytes_on_disk=found.bytes_on_disk,
        problem=problem,
        notes=[*found.notes, *standing.notes],
        aside=[_aside_info(aside) for aside in reading.aside()],
        records_refused=standing.records_refused,
        records_dropped=found.records_dropped,
    )


def _aside_info(aside: LeftAlone) -> AsideInfo:
    return AsideInfo(
        host=plain(aside.host),
        journal=plain(aside.journal),
        why=plain(aside.why),
        version=plain(aside.version),
        since_ns=aside.since_ns,
    )


def public_health(reading: Reading) -> Health:
    problem = reading.store.health().problem or reading.standing().problem
    return Health(status="degraded" if problem else "ok")


def _page(found: Sequence[Any], given: Given) -> tuple[Sequence[Any], int | None]:
    offset, limit = given["offset"], given["limit"]
    end = offset + limit
    return found[offset:end], end if end < len(found) else None


def run(reading: Reading, given: Given) -> RunDetail:
    id = reading.run(given["run"])
    states = reading.processes(id)
    card = reading.cards(reading.told(runs_of(states, {}), id))[0]
    limit = plain(reading.standing().limit(id))
    return RunDetail(**_run_fields(card), history=attempt_infos(states, id), limit=limit)


def attempt_infos(states: Iterable[ProcessState], run: RunId) -> list[AttemptInfo]:
    return [_attempt_info(attempt) for attempt in summarise_attempts(states)[run]]


def run_info(card: Card) -> RunInfo:
    return RunInfo(**_run_fields(card))


def _run_fields(card: Card) -> dict[str, Any]:
    summary, shown = card.summary, card.headline
    return {
        "run": summary.run,
        "name": summary.name,
        "group": summary.group,
        "state": summary.state,
        "stalled": summary.stalled,
        "reason": plain(summary.reason),
        "attempts": summary.attempts,
        "ranks": summary.ranks,
        "hosts": list(summary.hosts),
        "started_ns": summary.started_ns,
        "ended_ns": summary.ended_ns,
        "last_ns": summary.last_ns,
        "last_step": summary.last_step,
        "devices": card.devices,
        "user": plain(summary.user),
        "processes": _counts(summary.processes),
        "headline": None
        if shown is None
        else HeadlineInfo(
            metric=shown.metric,
            time_ns=shown.time_ns,
            step=shown.step,
            value=number(shown.value),
        ),
    }


def _attempt_info(attempt: AttemptSummary) -> AttemptInfo:
    return AttemptInfo(
        attempt=attempt.attempt,
        state=attempt.state,
        reason=plain(attempt.reason),
        ranks=attempt.ranks,
        hosts=list(attempt.hosts),
        started_ns=attempt.started_ns,
        ended_ns=attempt.ended_ns,
        last_ns=attempt.last_ns,
        processes=_counts(attempt.processes),
    )


def _counts(processes: Mapping[State, int]) -> ProcessCounts:
    return ProcessCounts(**{str(state): count for state, count in processes.items()})


def configs(reading: Reading, given: Given) -> ConfigsInfo:
    id = reading.run(given["run"])
    found = reading.configs(id)
    return ConfigsInfo(
        run=id, user=plain(found.user), software=plain(found.software), system=plain(found.system)
    )


def processes(reading: Reading, given: Given) -> ProcessList:
    id = reading.run(given["run"])
    return ProcessList(run=id, processes=[_process_info(state) for state in reading.processes(id)])


def _process_info(state: ProcessState) -> ProcessInfo:
    return ProcessInfo(
        journal=state.journal,
        host=state.host,
        pid=state.pid,
        rank=state.rank,
        world_size=state.world_size,
        attempt=state.attempt,
        state=state.state,
        reason=plain(state.reason),
        started_ns=state.started_ns,
        ended_ns=state.ended_ns,
        last_ns=state.last_ns,
        exit_code=state.exit_code,
        signal=state.signal,
        out_of_memory=state.out_of_memory,
    )


def question(given: Given) -> Question:
    return Question(
        given["metric"], given["rank"], given["host"], given["device"], given["attempt"]
    )


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


def latest(reading: Reading, given: Given) -> LatestList:
    id = reading.run(given["run"])
    attempts = reading.attempts(id)
    rows = reading.series(id, question(given), attempts)
    points = reading.latest(rows)
    return LatestList(
        run=id,
        points=latest_infos(((r, points[r.series]) for r in rows if r.series in points), attempts),
    )


def latest_infos(
    found: Iterable[tuple[SeriesRow, Latest]], attempts: AttemptOf
) -> list[LatestInfo]:
    return [
        LatestInfo(
            time_ns=point.time_ns,
            step=point.step,
            value=number(point.value),
            series=row.series,
            metric=row.metric,
            unit=row.unit,
            rank=row.rank,
            host=row.host,
            device=row.device,
            attempt=attempt_of(row, attempts),
        )
        for row, point in found
    ]


def curves(reading: Reading, given: Given) -> CurveList:
    id = reading.run(given["run"])
    _check_range(given)
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


def _check_range(given: Given) -> None:
    start, end = given["start"], given["end"]
    if start is not None and end is not None and start > end:
        raise UsageError(f"start={start} is after end={end}; the range is from start up to end")


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


def events(reading: Reading, given: Given) -> EventList:
    id = reading.run(given["run"])
    _check_range(given)
    found = reading.store.events(
        id,
        kinds=list(given["kind"]) or None,
        start_ns=given["start"],
        end_ns=given["end"],
        limit=given["limit"],
        newest_first=given["newest_first"],
        most_bytes=MOST_EVENT_BYTES,
    )
    return EventList(run=id, events=[_event_info(event) for event in found])


def _event_info(event: EventRow) -> EventInfo:
    return EventInfo(
        time_ns=event.time_ns,
        kind=event.kind,
        step=event.step,
        rank=event.rank,
        host=event.host,
        journal=event.journal,
        body=plain(event.body),
    )


def run_id(reading: Reading, given: Given) -> RunId:
    _check_range(given)
    return reading.run(given["run"])
