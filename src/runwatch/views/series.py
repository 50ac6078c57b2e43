"""Chooses the series that answer a question, names their curves, picks a run's headline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.record import JournalId, RunId
from runwatch.rows import Latest, SeriesRow

AttemptOf = Mapping[tuple[JournalId, RunId], int]


@dataclass(frozen=True, slots=True)
class Question:
    """Which series are wanted; an empty tuple does not restrict."""

    metrics: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()
    series: tuple[int, ...] = ()
    """The store's own numbers."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The one number that tells how a run is going."""

    metric: str
    value: float
    step: int | None
    time_ns: int


def attempt_of(series: SeriesRow, attempts: AttemptOf) -> int | None:
    """The attempt that a series belongs to; None for a host's own numbers.

    An agent's numbers about a process carry that process's journal as a label.
    """
    own = attempts.get((series.journal, series.run))
    if own is not None:
        return own
    return attempts.get((JournalId(series.labels.get("journal", "")), series.run))


def choose(series: Iterable[SeriesRow], question: Question, attempts: AttemptOf) -> list[SeriesRow]:
    """The series that answer the question, in the order of a legend."""
    chosen = [row for row in series if _answers(row, question, attempts)]
    return sorted(
        chosen,
        key=lambda row: (
            row.metric,
            attempt_of(row, attempts) or 0,
            row.rank,
            row.host,
            row.device,
            row.series,
        ),
    )


def _answers(row: SeriesRow, question: Question, attempts: AttemptOf) -> bool:
    return (
        (not question.series or row.series in question.series)
        and (not question.metrics or row.metric in question.metrics)
        and (not question.ranks or row.rank in question.ranks)
        and (not question.hosts or row.host in question.hosts)
        and (not question.devices or row.device in question.devices)
        and (not question.attempts or attempt_of(row, attempts) in question.attempts)
    )


def curve_labels(series: Sequence[SeriesRow], attempts: AttemptOf) -> dict[int, str]:
    """The metric and the labels that tell these curves apart: `loss · rank 3 · attempt 2`."""
    parts = {row.series: _parts(row, attempts) for row in series}
    columns = list(zip(*parts.values(), strict=True))
    tells_apart = [len(set(column)) > 1 for column in columns]
    return {
        number: " · ".join([own[0], *_telling(own[1:], tells_apart[1:])])
        for number, own in parts.items()
    }


def _telling(parts: Sequence[str], tells_apart: Sequence[bool]) -> list[str]:
    return [part for part, telling in zip(parts, tells_apart, strict=True) if telling and part]


def _parts(row: SeriesRow, attempts: AttemptOf) -> tuple[str, ...]:
    attempt = attempt_of(row, attempts)
    labels = " ".join(f"{key}={row.labels[key]}" for key in sorted(row.labels) if key != "journal")
    return (
        row.metric,
        f"rank {row.rank}",
        row.host,
        row.device,
        "" if attempt is None else f"attempt {attempt}",
        labels,
    )


_LOSS_LIKE: Final = re.compile(r"(?:^|[^a-z])(loss|nll|perplexity|error)(?:$|[^a-z])")


def headline(series: Iterable[SeriesRow], latest: Mapping[int, Latest]) -> Headline | None:
    """The newest loss-like number; training's before evaluation's, rank 0's before others'."""
    candidates = [row for row in series if row.series in latest and _loss_like(row.metric)]
    if not candidates:
        return None
    best = min(
        candidates,
        key=lambda row: (
            _strangeness(row.metric),
            row.rank != 0,
            -latest[row.series].time_ns,
            row.metric,
        ),
    )
    point = latest[best.series]
    return Headline(best.metric, point.value, point.step, point.time_ns)


def _loss_like(metric: str) -> bool:
    return _LOSS_LIKE.search(metric.lower()) is not None


def _strangeness(metric: str) -> int:
    name = metric.lower()
    if name == "loss":
        return 0
    if "train" in name and "loss" in name:
        return 1
    return 2 if "loss" in name else 3
