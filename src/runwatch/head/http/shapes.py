"""Runs, attempts, newest points, events and disruptions as API shapes, for several features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from runwatch.head.http.types import (
    AttemptInfo,
    DisruptionInfo,
    EventFields,
    GoodputShare,
    HeadlineInfo,
    LatestInfo,
    ProcessCounts,
    RunInfo,
    WarningInfo,
    number,
    plain,
)
from runwatch.head.reading import Card
from runwatch.head.state.board import RunBoard
from runwatch.record import RunId
from runwatch.rows import EventRow, Latest, SeriesRow
from runwatch.views.goodput.account import Disruption, Goodput
from runwatch.views.life import State
from runwatch.views.runs import AttemptSummary, ProcessState, summarise_attempts
from runwatch.views.series import AttemptOf, attempt_of
from runwatch.views.warnings import of_jobs, of_steps

MOST_EVENT_BYTES: Final = 16 << 20
"""Bytes of event bodies in one answer; one body may have half a megabyte."""
Event = TypeVar("Event", bound=EventFields)


def run_info(card: Card) -> RunInfo:
    return RunInfo(**run_fields(card))


def described(board: RunBoard, card: Card) -> RunInfo:
    """A run with its planned steps and its last known goodput."""
    info = run_info(card)
    info.total_steps = board.total_steps(card.summary.run)
    if (note := board.noted(card.summary.run)) is not None:
        info.goodput = GoodputShare(share=note.share, spent=plain(note.spent), time_ns=note.time_ns)
    return info


def run_fields(card: Card) -> dict[str, Any]:
    summary, shown = card.summary, card.headline
    return {
        "run": summary.run,
        "name": summary.name,
        "group": summary.group,
        "state": summary.state,
        "stalled": summary.stalled,
        "shown_state": summary.shown_state,
        "warnings": [
            WarningInfo(
                code=each.code,
                text=plain(each.text),
                time_ns=each.time_ns,
                step=each.step,
                weight=each.weight,
            )
            for each in (*card.warnings, *of_jobs(summary), *of_steps(summary))
        ],
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
        "workload": plain(summary.workload),
        "workload_uid": plain(summary.workload_uid),
        "waits": plain(summary.waits),
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


def attempt_infos(states: Iterable[ProcessState], run: RunId) -> list[AttemptInfo]:
    return [_attempt_info(attempt) for attempt in summarise_attempts(states)[run]]


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


def latest_infos(
    points: Iterable[tuple[SeriesRow, Latest]], attempts: AttemptOf
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
        for row, point in points
    ]


def event_info(kind: type[Event], event: EventRow, body: dict[str, Any]) -> Event:
    return kind(
        time_ns=event.time_ns,
        kind=event.kind,
        step=event.step,
        rank=event.rank,
        host=event.host,
        journal=event.journal,
        body=body,
    )


def disruption_infos(goodput: Goodput, start_ns: int, end_ns: int) -> list[DisruptionInfo]:
    return [_disruption(d) for d in goodput.disruptions if start_ns <= d.time_ns <= end_ns]


def _disruption(disruption: Disruption) -> DisruptionInfo:
    return DisruptionInfo(
        attempt=disruption.attempt,
        time_ns=disruption.time_ns,
        cause=plain(disruption.cause),
        hung=disruption.hung,
        lost_steps=disruption.lost_steps,
        wasted_ns=disruption.wasted_ns,
        recovery_ns=disruption.recovery_ns,
        back_ns=disruption.back_ns,
        hang_ns=disruption.hang_ns,
        warm_up_ns=disruption.warm_up_ns,
        cost_ns=disruption.cost_ns,
    )
