"""Statistics of step times: what a step ought to take, and which ones took longer.

A time is anomalous if it lies more than three median absolute deviations above the median.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import floor, fsum
from statistics import fmean
from typing import Any, Final, TypeGuard

from runwatch.compat.goodput.kinds import MonitoringWindowType

_SHORTEST_SECONDS: Final = 1.0
"""Shorter steps are left out where a job has longer ones: they did not do a step's work."""

_DEVIATIONS: Final = 3.0


def compute_percentile(values: Sequence[float], percentile: float) -> float:
    """Between two values it is interpolated; of no values it is 0."""
    return _percentile(sorted(values), percentile)


def _percentile(ordered: Sequence[float], percentile: float) -> float:
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percentile / 100
    below = min(max(floor(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    low = ordered[below]
    return float(low + (ordered[above] - low) * (place - below))


def compute_ideal_step_time(
    step_times: Sequence[float], previous_ideal_step_time: float | None = None
) -> float | None:
    """What a step takes when nothing is in its way, in seconds.

    None if there are no times to tell from; then, as in the first generation,
    `previous_ideal_step_time` holds if there is one.
    """
    times = [time for time in step_times if time >= _SHORTEST_SECONDS]
    if not times:  # a job of short steps: all that took any time
        times = [time for time in step_times if time > 0]
    if not times:
        return previous_ideal_step_time
    times.sort()
    return fmean(times[: bisect_right(times, _limit(times))])


def _limit(ordered: Sequence[float]) -> float:
    median = _percentile(ordered, 50)
    distances = sorted(abs(value - median) for value in ordered)
    return median + _DEVIATIONS * _percentile(distances, 50)


def get_anomalous_and_normal_step_times(
    step_times: Sequence[float],
) -> tuple[list[float], list[float]]:
    """(anomalous, normal), each in the order given."""
    if not step_times:
        return [], []
    limit = _limit(sorted(step_times))
    anomalous = [time for time in step_times if time > limit]
    return anomalous, [time for time in step_times if time <= limit]


def get_extra_time_from_anomalous_steps(step_times: Sequence[float]) -> float:
    """How much longer the anomalous steps took than normal ones would have."""
    anomalous, normal = get_anomalous_and_normal_step_times(step_times)
    if not anomalous:
        return 0.0
    return fsum(anomalous) - len(anomalous) * fmean(normal)


def compute_step_deviation_from_baseline(
    step_time_deviation: Mapping[int, float],
    mode: MonitoringWindowType = MonitoringWindowType.CUMULATIVE,
    recent_window_size: int = 100,
    baseline_window_size: int = 1000,
    spike_percentile: int = 90,
) -> float:
    """One number for how far the latest steps are from the ideal.

    The mean while there are few; then a high percentile of the latest; and, over a whole job,
    that above the median of those before them.
    """
    count = len(step_time_deviation)
    window = recent_window_size + baseline_window_size
    values = list(islice(step_time_deviation.values(), max(count - window, 0), None))
    if not values:
        return 0.0
    if count < recent_window_size:
        return fmean(values)
    recent = compute_percentile(values[-recent_window_size:], spike_percentile)
    if mode is MonitoringWindowType.INTERVAL or count < window:
        return recent
    return recent - compute_percentile(values[:-recent_window_size], 50)


def get_timestamp_from_log_entry(entry: Mapping[str, Any]) -> datetime | None:
    """The first time that an entry states."""
    seconds = stated_seconds(entry)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def stated_seconds(entry: Mapping[str, Any]) -> float | None:
    """Since the epoch; fields that say nothing usable are passed over."""
    for name, value in entry.items():
        if "time" in name and is_seconds(value):
            return float(value)
    return None


LATEST_SECONDS: Final = 1e11
"""What lies further from the epoch than this is no time (a date has four digits for the year)."""

_NUMBER: Final = (float, int)


def is_seconds(value: object) -> TypeGuard[float]:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, _NUMBER)):
        return False
    return -LATEST_SECONDS < value < LATEST_SECONDS  # neither is infinity, nor what is no number
