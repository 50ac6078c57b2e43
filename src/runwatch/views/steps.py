"""How far a run is, and how long its steps take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from runwatch.record import BEGIN, END, JournalId, RunId
from runwatch.rows import Latest, SeriesRow, SpanRow

STEP: Final = "step"


@dataclass(frozen=True, slots=True)
class StepTime:
    journal: JournalId
    rank: int
    step: int | None
    start_ns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RankSteps:
    rank: int
    steps: int
    last_step: int | None
    mean_seconds: float
    median_seconds: float
    maximum_seconds: float


def last_steps(series: Iterable[SeriesRow], latest: Mapping[int, Latest]) -> dict[RunId, int]:
    """The highest step among the newest points of each run; runs without steps are left out."""
    found: dict[RunId, int] = {}
    for row in series:
        point = latest.get(row.series)
        if point is not None and point.step is not None:
            found[row.run] = max(found.get(row.run, point.step), point.step)
    return found


def step_times(spans: Iterable[SpanRow]) -> list[StepTime]:
    """The finished steps, in order of their start; a begin without an end was cut short."""
    begun: dict[tuple[JournalId, int], SpanRow] = {}
    finished = []
    for row in sorted(spans, key=lambda row: (row.time_ns, row.edge)):
        if row.name != STEP:
            continue
        if row.edge == BEGIN:
            begun[row.journal, row.span] = row
        elif row.edge == END and (begin := begun.pop((row.journal, row.span), None)):
            step = begin.step if begin.step is not None else row.step
            seconds = (row.time_ns - begin.time_ns) / 1e9
            finished.append(StepTime(row.journal, row.rank, step, begin.time_ns, seconds))
    return sorted(finished, key=lambda time: (time.start_ns, time.rank))


def rank_steps(times: Iterable[StepTime]) -> list[RankSteps]:
    by_rank: dict[int, list[StepTime]] = defaultdict(list)
    for time in times:
        by_rank[time.rank].append(time)
    return [_rank(rank, by_rank[rank]) for rank in sorted(by_rank)]


def _rank(rank: int, times: list[StepTime]) -> RankSteps:
    seconds = [time.seconds for time in times]
    numbers = [time.step for time in times if time.step is not None]
    return RankSteps(
        rank=rank,
        steps=len(times),
        last_step=max(numbers, default=None),
        mean_seconds=fmean(seconds),
        median_seconds=median(seconds),
        maximum_seconds=max(seconds),
    )


def steps_per_second(times: Iterable[StepTime]) -> float | None:
    """Distinct steps over the time from the first start to the last end; all ranks do a step once.

    None when there is nothing to divide.
    """
    known = [time for time in times if time.step is not None]
    if not known:
        return None
    first_ns = min(time.start_ns for time in known)
    last_ns = max(time.start_ns + time.seconds * 1e9 for time in known)
    if last_ns <= first_ns:
        return None
    return len({time.step for time in known}) / ((last_ns - first_ns) / 1e9)
