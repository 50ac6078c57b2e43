"""Goodput of a job whose slices come and go.

Waits for slices and re-initialisations are kinds of their own.  What was initialised or prepared
within a re-initialisation belongs to that.  By the original's rules all of it is added to what
the job's steps and disruptions come to, and nothing is taken from them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, cast

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.codes import (
    REINIT_END,
    REINIT_START,
    SLICES,
    WAIT_END,
    WAIT_START,
)
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.rules import Figures, Fold, Pairs, Spans
from runwatch.compat.goodput.calculator.windows import bounds
from runwatch.compat.goodput.goodput_utils import (
    BadputType,
    ElasticIntervalWorkloadMetricDetails,
    ElasticWorkloadMetricDetails,
)

Interval = tuple[float, float]


class ElasticFold(Fold):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._waits: dict[str, Pairs] = {}
        """Type of wait → its waits."""
        self._reinits = Spans()
        self._starts[REINIT_START] = self._reinits
        self._ends[REINIT_END] = self._reinits
        self._handlers |= {WAIT_START: self._wait_start, WAIT_END: self._wait_end}

    def _wait_start(self, index: int, time: float) -> None:
        self._waits.setdefault(self.history.word(index), Pairs()).start = time

    def _wait_end(self, index: int, time: float) -> None:
        self._waits.setdefault(self.history.word(index), Pairs()).end(time)

    def figures(self) -> Figures:
        figures = super().figures()
        down = up = 0.0
        for name, waits in self._waits.items():
            if "scale_up" in name.lower():
                up += waits.total
            else:
                down += waits.total
        kind, reinits = BadputType, self._reinits.spans
        within = {
            kind.TPU_INITIALIZATION: self._initialised,
            kind.TRAINING_PREP: self._prepared,
        }
        badput = figures.badput | {
            **{name: part.total - overlap(part.spans, reinits) for name, part in within.items()},
            kind.ELASTIC_SLICE_DOWN: down,
            kind.ELASTIC_SCALE_UP: up,
            kind.ELASTIC_REINITIALIZATION: self._reinits.total,
        }
        return replace(figures, badput=badput)


def overlap(some: Iterable[Interval], others: Iterable[Interval]) -> float:
    """How long intervals of both lists go on at once; twice if two of one list do."""
    edges = [(time, step, 0) for span in some for time, step in zip(span, (1, -1), strict=True)]
    edges += [(time, 0, step) for span in others for time, step in zip(span, (1, -1), strict=True)]
    if not edges:
        return 0.0
    edges.sort()
    seconds, before, first, second = 0.0, edges[0][0], 0, 0
    for time, of_some, of_others in edges:
        seconds += (time - before) * first * second
        before, first, second = time, first + of_some, second + of_others
    return seconds


class Efficiency(NamedTuple):
    """Shares of the slices, on the average of a window."""

    stepping: float
    available: float


def efficiency(history: History, start: float, end: float) -> Efficiency | None:
    """By the last count before each moment; none before the first.  None if nothing was counted."""
    counts = _counts(history)
    if not counts or end <= start:
        return None
    first = max(bisect_right(counts, start, key=lambda count: count[0]) - 1, 0)
    stepping = available = 0.0
    for (time, active, free), (until, _, _) in pairwise((*counts[first:], (end, 0.0, 0.0))):
        seconds = max(min(until, end) - max(time, start), 0.0)
        stepping += seconds * active
        available += seconds * free
    return Efficiency(stepping / (end - start), available / (end - start))


def _counts(history: History) -> list[tuple[float, float, float]]:
    """(when, share of the slices that step, share that is available), in order of time."""
    counts = []
    for at, row in zip(history.note_at, history.note_row, strict=True):
        if history.codes[at] == SLICES:
            active, total, available = history.slices[row]
            slices = max(total, 1)
            counts.append((history.others.times[at], active / slices, available / slices))
    return sorted(counts)


class ElasticGoodputCalculator(GoodputCalculator):
    """As `GoodputCalculator`, with the waits of an elastic job and how its slices were used."""

    _fold_type = ElasticFold

    def get_job_goodput_details(
        self, *, include_step_deviation: bool = True
    ) -> ElasticWorkloadMetricDetails:
        details = cast(
            ElasticWorkloadMetricDetails,
            super().get_job_goodput_details(include_step_deviation=include_step_deviation),
        )
        with self._lock:
            start, total = self._fold.start, details["total_elapsed_time"]
            if start is not None and total > 0:
                _add_efficiency(details, efficiency(self._history, start, start + total))
        return details

    def get_interval_metric_details(
        self, interval_start: datetime, interval_end: datetime
    ) -> ElasticIntervalWorkloadMetricDetails:
        details = cast(
            ElasticIntervalWorkloadMetricDetails,
            super().get_interval_metric_details(interval_start, interval_end),
        )
        start, end = bounds(interval_start, interval_end)
        with self._lock:
            # Slices counted before the window are not known in it: the original's rule.
            _add_efficiency(details, efficiency(self._history.between(start, end), start, end))
        return details

    def get_slice_efficiency(
        self, interval_start: datetime, interval_end: datetime
    ) -> Efficiency | None:
        """How the slices were used in a window, by the last count before each moment of it: what
        the original's window does not know.  None if nothing was counted."""
        start, end = bounds(interval_start, interval_end)
        with self._lock:
            self._refresh()
            return efficiency(self._history, start, end)


def _add_efficiency(
    details: ElasticWorkloadMetricDetails | ElasticIntervalWorkloadMetricDetails,
    used: Efficiency | None,
) -> None:
    if used is not None:
        details["stepping_slice_efficiency"] = used.stepping
        details["available_slice_efficiency"] = used.available
