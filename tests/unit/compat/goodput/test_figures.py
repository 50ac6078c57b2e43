from __future__ import annotations

import statistics
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.goodput_utils import (
    MonitoringWindowType,
    compute_ideal_step_time,
    compute_percentile,
    compute_step_deviation_from_baseline,
    get_anomalous_and_normal_step_times,
    get_extra_time_from_anomalous_steps,
    get_timestamp_from_log_entry,
)

times = st.floats(0.001, 1000)


@pytest.mark.parametrize(
    ("values", "percentile", "expected"),
    [
        ([1, 2, 3, 4], 50, 2.5),
        ([1, 2, 3, 4], 90, 3.7),
        ([3, 1, 2], 0, 1),
        ([3, 1, 2], 100, 3),
        ([5], 10, 5),
        ([1, 2], 33, 1.33),
        ([], 50, 0),
    ],
)
def test_percentiles_are_interpolated(
    values: list[float], percentile: float, expected: float
) -> None:
    assert compute_percentile(values, percentile) == pytest.approx(expected)


@given(st.lists(times, min_size=1))
def test_the_median_is_the_middle(values: list[float]) -> None:
    assert compute_percentile(values, 50) == pytest.approx(statistics.median(values))


@pytest.mark.parametrize(
    ("step_times", "ideal"),
    [
        ([1, 2, 3], 2.0),
        ([1, 1, 1, 10], 1.0),
        ([2, 2, 2, 3, 4, 5, 100], 3.0),
        ([0.9, 1.0, 1.1], 1.05),
        ([0.5, 5.0], 5.0),
        ([1.0, 1.0, 0.2, 50], 1.0),
        ([0.0, -3.0], None),
        ([], None),
    ],
)
def test_the_ideal_is_the_mean_of_what_is_usual(
    step_times: list[float], ideal: float | None
) -> None:
    assert compute_ideal_step_time(step_times) == (ideal and pytest.approx(ideal))


def test_the_first_generation_falls_back_on_the_previous_ideal() -> None:
    assert compute_ideal_step_time([], 2.5) == 2.5
    assert compute_ideal_step_time([4.0, 4.0], 2.5) == 4.0


def test_anomalous_steps_and_what_they_cost() -> None:
    step_times = [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 50]
    assert get_anomalous_and_normal_step_times(step_times) == ([50], step_times[:-1])
    assert get_extra_time_from_anomalous_steps(step_times) == pytest.approx(44.5)
    assert get_extra_time_from_anomalous_steps([3.0, 3, 3, 9, 27]) == pytest.approx(30)
    assert get_extra_time_from_anomalous_steps([]) == 0.0


class TestStepDeviation:
    def test_few_steps_give_their_mean(self) -> None:
        assert compute_step_deviation_from_baseline({1: 1.0, 2: 3.0}) == 2.0
        assert compute_step_deviation_from_baseline({}) == 0.0

    def test_the_latest_hundred_give_a_high_percentile(self) -> None:
        deviations = {step: float(step) for step in range(500)}
        expected = compute_percentile([float(step) for step in range(400, 500)], 90)
        assert compute_step_deviation_from_baseline(deviations) == expected

    def test_of_a_long_job_those_before_are_the_baseline(self) -> None:
        deviations = {step: float(step % 7) for step in range(2000)}
        values = list(deviations.values())
        spike = compute_percentile(values[-100:], 90)
        baseline = compute_percentile(values[-1100:-100], 50)
        assert compute_step_deviation_from_baseline(deviations) == spike - baseline
        window = MonitoringWindowType.INTERVAL
        assert compute_step_deviation_from_baseline(deviations, window) == spike

    def test_windows_of_other_sizes(self) -> None:
        deviations = {step: float(step) for step in range(60)}
        found = compute_step_deviation_from_baseline(
            deviations, recent_window_size=10, baseline_window_size=50, spike_percentile=100
        )
        assert found == 59 - 24.5


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        ({"job_name": "a", "step_start_time": 5.0}, 5),
        ({"custom_badput_event_type": "time", "custom_badput_event_start_time": 8.0}, 8),
        ({"elastic_slice_counts_timestamp": 4}, 4),
        ({"a_time": None, "b_time": 7.0}, 7),
        ({"a_time": "noon", "b_time": float("nan"), "c_time": True, "d_time": 9.0}, 9),
        ({"x": 1.0}, None),
    ],
)
def test_an_entry_is_of_the_first_time_that_it_states(
    entry: dict[str, object], seconds: float | None
) -> None:
    expected = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    assert get_timestamp_from_log_entry(entry) == expected
