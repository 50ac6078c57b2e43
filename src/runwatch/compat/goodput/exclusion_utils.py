"""Intervals to leave out, as `ml_goodput_measurement.exclusion_utils` has them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from runwatch.compat.goodput.calculator.windows import NoTimeZoneError, moment

logger = logging.getLogger("ml_goodput_measurement.src.exclusion_utils")

Interval = tuple[float, float]


def normalize_intervals(intervals: Iterable[tuple[datetime, datetime]]) -> list[Interval]:
    """As seconds since the epoch: in order, apart from one another, none of them empty.

    Any time zone will do.  An interval without one is left out and told of, as in the original.
    """
    kept: list[Interval] = []
    for start, end in intervals:
        try:
            begin = moment(start, "the start of an excluded interval")
            finish = moment(end, "the end of an excluded interval")
        except NoTimeZoneError as error:
            logger.warning("%s; it excludes nothing", error)
            continue
        if begin < finish:
            kept.append((begin, finish))
        else:
            logger.warning("the interval from %s to %s is empty: it excludes nothing", start, end)
    return _merged(kept)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def get_exclusion_overlap(start: float, end: float, exclusions: Sequence[Interval]) -> float:
    """How much of the time from `start` to `end` is excluded."""
    return sum(max(min(end, b) - max(start, a), 0.0) for a, b in exclusions)
