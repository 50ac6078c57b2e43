"""Elastic jobs.  Random ones are compared with the original in the tests of the calculator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.elastic import ElasticGoodputCalculator, overlap
from runwatch.compat.goodput.exclusion_utils import get_exclusion_overlap
from tests.unit.compat.goodput.support import Fixed, ListedLog, by_name, told, when

Spans = Sequence[tuple[int, int]]

spans = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50)).filter(lambda span: span[0] < span[1]),
    max_size=6,
)


def calculator(story: str) -> ElasticGoodputCalculator:
    return ElasticGoodputCalculator("job", "log", ListedLog(told(story)), clock=Fixed())


def seconds(asked: ElasticGoodputCalculator) -> dict[str, Any]:
    asked.get_job_goodput()
    details = asked.get_job_goodput_details()
    return {name: amount for name, amount in by_name(details["badput_time"]).items() if amount}


WAITS = (
    "J 0; W slice_down 10; w slice_down 20; W scale_up 20; w scale_up 35; "
    "R 40; I 41; i 46; P 46; p 51; r 60; S 0 61; S 1 64; S 2 67; j 70"
)


class TestWorkedExample:
    def test_waits_and_reinitialisation(self) -> None:
        assert seconds(calculator(WAITS)) == {
            "ELASTIC_SLICE_DOWN": 10,
            "ELASTIC_SCALE_UP": 15,
            "ELASTIC_REINITIALIZATION": 20,
            "OTHER": 16,
        }

    def test_efficiency(self) -> None:
        asked = calculator("J 0; N 2 4 2 0; N 2 4 4 28800; S 0 5; S 1 8; j 32400")
        asked.get_job_goodput()
        details = asked.get_job_goodput_details()
        assert details["stepping_slice_efficiency"] == pytest.approx(0.5)
        assert details["available_slice_efficiency"] == pytest.approx(5 / 9)


class TestRules:
    def test_what_lies_partly_in_a_reinitialisation_counts_for_the_rest(self) -> None:
        found = seconds(calculator("J 0; R 40; r 44; I 41; i 46; P 46; p 51; R 50; r 60; j 70"))
        assert found["TPU_INITIALIZATION"] == 2
        assert found["TRAINING_PREP"] == 4

    def test_each_type_of_wait_has_its_own_start(self) -> None:
        found = seconds(
            calculator(
                "J 0; W Elastic_Scale_Up 10; W down 12; w Elastic_Scale_Up 15; w down 20; j 70"
            )
        )
        assert (found["ELASTIC_SCALE_UP"], found["ELASTIC_SLICE_DOWN"]) == (5, 8)

    def test_every_kind_is_told_of(self) -> None:
        asked = calculator("J 0; S 0 1; j 2")
        for badput in (
            asked.get_job_goodput(True)[1],
            asked.get_job_goodput_interval(when(-1), when(3))[1],
            asked.get_job_goodput_with_exclusions([], True)[1],
        ):
            assert len(badput) == 14

    @given(spans, spans)
    def test_overlap_is_the_sum_of_that_of_all_pairs(self, some: Spans, others: Spans) -> None:
        expected = sum(get_exclusion_overlap(a, b, [other]) for a, b in some for other in others)
        assert overlap(some, others) == pytest.approx(expected)


class TestEfficiency:
    def test_none_without_counts(self) -> None:
        asked = calculator("J 0; S 0 1; j 2")
        asked.get_job_goodput()
        assert "stepping_slice_efficiency" not in asked.get_job_goodput_details()
        assert "stepping_slice_efficiency" not in asked.get_interval_metric_details(
            when(-1), when(5)
        )

    def test_none_before_a_question(self) -> None:
        assert (
            "stepping_slice_efficiency"
            not in calculator("J 0; N 1 2 2 0").get_job_goodput_details()
        )

    @pytest.mark.parametrize(
        ("counts", "stepping"),
        [
            pytest.param("N 2 4 4 -10; N 1 4 4 -5", 0.25, id="counted before the job"),
            pytest.param("N 4 4 4 40; N 1 4 2 20", 25 / 60, id="in another order"),
            pytest.param("N 1 4 4 70", 0.0, id="counted after the job"),
            pytest.param("N 0 0 0 10", 0.0, id="no slices"),
        ],
    )
    def test_by_the_last_count(self, counts: str, stepping: float) -> None:
        asked = calculator(f"J 0; S 0 10; S 1 30; {counts}; S 2 50; j 60")
        asked.get_job_goodput()
        details = asked.get_job_goodput_details()
        assert details["stepping_slice_efficiency"] == pytest.approx(stepping)

    def test_b18_a_window_of_the_originals_knows_only_its_own_counts(self) -> None:
        """Four of four slices all along: the original sees half of it.  The truth is beside."""
        asked = calculator("J 0; N 4 4 4 0; S 0 10; S 1 30; N 4 4 4 50; S 2 60; S 3 90")
        details = asked.get_interval_metric_details(when(20), when(80))
        assert details["stepping_slice_efficiency"] == pytest.approx(0.5)
        assert asked.get_slice_efficiency(when(20), when(80)) == (1.0, 1.0)
        assert "stepping_slice_efficiency" not in asked.get_interval_metric_details(
            when(5), when(45)
        )
        assert asked.get_slice_efficiency(when(5), when(45)) == (1.0, 1.0)
        assert calculator("J 0; S 0 10; S 1 30").get_slice_efficiency(when(5), when(45)) is None
