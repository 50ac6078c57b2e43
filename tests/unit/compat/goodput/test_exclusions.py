from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.exclusion_utils import get_exclusion_overlap, normalize_intervals
from runwatch.compat.goodput.goodput_utils import BadputType
from tests.unit.compat.goodput.support import (
    BEGIN,
    Entry,
    Fixed,
    ListedLog,
    by_name,
    calculator_of,
    moment,
    recorded,
    same,
    stories,
    told,
    when,
)

intervals = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8)


def calculator(story: str) -> GoodputCalculator:
    return GoodputCalculator("job", "log", ListedLog(told(story)), clock=Fixed())


@pytest.mark.parametrize("job", recorded(purposeful=False), ids=lambda job: job["name"])
def test_answers_are_those_of_the_original(job: dict[str, Any]) -> None:
    asked = calculator_of(job)
    for excluded, answer in zip(job["exclusions_asked"], job["exclusions"], strict=True):
        pairs = [(moment(start), moment(end)) for start, end in excluded]
        percent, badput, last, seconds = asked.get_job_goodput_with_exclusions(pairs, True)
        assert same(percent, answer[0])
        assert by_name(badput).keys() == answer[1].keys()
        assert same(by_name(badput), answer[1])
        assert last == answer[2]
        assert seconds == pytest.approx(answer[3], abs=1e-6)


class TestWorkedExamples:
    def test_part_of_a_step(self) -> None:
        asked = calculator("J 0; S 0 10; S 1 20; j 30")
        percent, badput, last, seconds = asked.get_job_goodput_with_exclusions(
            [(when(10), when(15))], include_badput_breakdown=True
        )
        assert (percent, last, seconds) == (60.0, 1, 5.0)
        assert badput[BadputType.OTHER] == 40.0

    def test_time_that_nothing_was_measured_in_stays(self) -> None:
        asked = calculator("J 0; P 0; p 10; S 0 20; j 25")
        _, badput, _, seconds = asked.get_job_goodput_with_exclusions([(when(5), when(15))], True)
        assert seconds == 5.0
        assert badput[BadputType.TRAINING_PREP] == 25.0


class TestAnswers:
    story = "J 0; S 0 0; S 1 10; S 2 20; S 3 30; j 40"

    def test_breakdown_only_if_asked_for(self) -> None:
        answer = calculator(self.story).get_job_goodput_with_exclusions([])
        assert answer == (100.0, {}, 3, 0.0)

    def test_everything(self) -> None:
        answer = calculator(self.story).get_job_goodput_with_exclusions(
            [(when(-9), when(99))], True
        )
        assert answer == (0.0, {}, 3, 40.0)

    def test_no_job_at_all(self) -> None:
        assert calculator("").get_job_goodput_with_exclusions([]) == (0.0, {}, 0, 0.0)

    def test_long_events_around_many_steps(self) -> None:
        steps = "; ".join(f"S {n} {10 * n}" for n in range(1, 6))
        asked = calculator(f"J 0; {steps}; C a 12; C b 21; c b 22; c a 42; j 60")
        _, badput, _, _ = asked.get_job_goodput_with_exclusions([], True)
        custom = by_name(badput)["CUSTOM_BADPUT_EVENTS"]
        assert custom == pytest.approx({"A": 30 / 60 * 100, "B": 1 / 60 * 100})

    @given(stories(), intervals)
    def test_what_is_excluded_is_no_longer_than_the_exclusions_of_each_piece(
        self, entries: list[Entry], pairs: list[tuple[int, int]]
    ) -> None:
        asked = GoodputCalculator("job", "log", ListedLog(entries), clock=Fixed())
        chosen = [(when(start), when(end)) for start, end in pairs if start < end]
        seconds = asked.get_job_goodput_with_exclusions(chosen)[3]
        assert seconds >= 0
        assert asked.get_job_goodput_with_exclusions([])[3] == 0
        if not chosen:
            assert seconds == 0


class TestIntervals:
    def test_they_are_sorted_and_merged(self) -> None:
        pairs = [(when(20), when(30)), (when(0), when(5)), (when(5), when(7)), (when(25), when(40))]
        assert normalize_intervals(pairs) == [(BEGIN, BEGIN + 7), (BEGIN + 20, BEGIN + 40)]

    def test_any_time_zone_will_do(self) -> None:
        """B16: the original leaves out all but datetime.timezone.utc."""
        for zone in (ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=9))):
            pair = when(0).astimezone(zone), when(5).astimezone(zone)
            assert normalize_intervals([pair]) == [(BEGIN, BEGIN + 5)]

    def test_one_without_a_zone_is_left_out_and_told_of(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        pairs = [(datetime(2024, 1, 1), datetime(2024, 1, 2)), (when(0), when(5))]
        assert normalize_intervals(pairs) == [(BEGIN, BEGIN + 5)]
        assert "no time zone" in caplog.text

    def test_an_empty_one_is_left_out_and_told_of(self, caplog: pytest.LogCaptureFixture) -> None:
        assert normalize_intervals([(when(5), when(5)), (when(9), when(3))]) == []
        assert len(caplog.records) == 2 and "is empty" in caplog.text

    @given(intervals, st.integers(0, 100), st.integers(0, 100))
    def test_overlap_is_what_both_have(
        self, pairs: list[tuple[int, int]], start: int, end: int
    ) -> None:
        chosen = normalize_intervals([(when(a), when(b)) for a, b in pairs if a < b])
        inside = {s for a, b in pairs for s in range(a, b) if start <= s < end}
        overlap = get_exclusion_overlap(BEGIN + start, BEGIN + end, chosen)
        assert overlap == pytest.approx(len(inside))
