"""What the original gets wrong and ours does not, one test for each (B-numbers of its report).

Figures that are wrong but relied upon are pinned with the rules, in test_rules.py,
test_windows.py and test_elastic.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.goodput_utils import BadputType
from tests.unit.compat.goodput.support import (
    BEGIN,
    Entry,
    Fixed,
    ListedLog,
    MemoryLog,
    told,
    when,
)


def steps(first: int, last: int, seconds: float = 3.0, begin: float = 5.0) -> list[Entry]:
    return [
        {
            "job_name": "job",
            "step_count": number,
            "step_start_time": BEGIN + begin + (number - first) * seconds,
        }
        for number in range(first, last + 1)
    ]


def calculator(log: MemoryLog, name: str = "job", folder: str = "/tmp") -> GoodputCalculator:
    return GoodputCalculator(name, "log", log, cache_dir=folder, clock=Fixed())


def disruptions(asked: GoodputCalculator) -> int:
    asked.get_job_goodput()
    return asked.get_job_goodput_details()["disruption_count"]


def test_b01_a_calculator_made_again_sees_what_is_new(tmp_path: Path) -> None:
    log = MemoryLog([*told("J 0"), *steps(0, 9)])
    assert calculator(log, folder=str(tmp_path)).get_job_goodput()[2] == 8
    for entry in steps(10, 999, begin=35):
        log.write_cloud_logging_entry(entry)
    again = calculator(log, folder=str(tmp_path))
    assert again.get_job_goodput()[2] == 998
    log.write_cloud_logging_entry(steps(1000, 1000, begin=3005)[0])
    assert again.get_job_goodput()[2] == 999


def test_b02_calculators_of_one_job_do_not_disturb_each_other(tmp_path: Path) -> None:
    log = MemoryLog(told("J 0"))
    first, second = (calculator(log, folder=str(tmp_path)) for _ in range(2))
    for number in range(20):
        log.write_cloud_logging_entry(steps(number, number, begin=5 + 3 * number)[0])
        asked = (first, second)[number % 2]
        assert disruptions(asked) == 0
    assert first.get_step_deviation() == second.get_step_deviation()
    assert max(first.get_step_deviation()) == 18
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", [3, 5])
def test_b08_a_job_that_goes_on_after_its_end_has_figures(first: int) -> None:
    log = ListedLog([*told("J 0"), *steps(0, 4), *told("j 22; J 100")])
    asked = GoodputCalculator("job", "log", log, clock=Fixed(BEGIN + 200))
    assert asked.get_job_goodput()[2] == 4
    for entry in steps(first, 9, begin=105):
        log.write_cloud_logging_entry(entry)
    percent, _, last = asked.get_job_goodput(True)
    assert 0 < percent < 100 and last == 8
    assert asked.get_job_goodput_details()["total_elapsed_time"] == 200
    log.write_cloud_logging_entry(told("j 150")[0])
    asked.get_job_goodput()
    assert asked.get_job_goodput_details()["total_elapsed_time"] == 150


def test_b11_checkpoints_that_were_not_measured_do_not_spoil_the_answer() -> None:
    whole = told("V 1 gs://a 2 9")[0]
    name = "checkpoint_manager_blocking"
    broken: list[Entry] = [
        {**whole, "step": 2, f"{name}_duration_secs": None},
        {**whole, "step": 3, f"{name}_duration_secs": "long"},
        {**whole, "step": 4, f"{name}_start_time": None},
        {k: v for k, v in whole.items() if not k.endswith("duration_secs")},
    ]
    nowhere = {k: v for k, v in whole.items() if k != "directory"} | {"step": 5}
    asked = calculator(
        ListedLog([*told("J 0"), *steps(0, 4), whole, *broken, nowhere, *told("j 20")])
    )
    _, badput, _ = asked.get_job_goodput(True)
    assert badput[BadputType.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME] == pytest.approx((2 + 2) / 20 * 100)
    assert asked.get_job_goodput_interval(when(-1), when(30))[3] == 20


def test_b12_short_steps_have_an_ideal_and_deviations() -> None:
    times = [0.5, 0.5, 0.5, 0.9, 0.5]
    begins = [5 + sum(times[:n]) for n in range(len(times) + 1)]
    entries = [steps(n, n, begin=begin)[0] for n, begin in enumerate(begins)]
    asked = calculator(ListedLog([*told("J 0"), *entries]))
    deviations = asked.get_step_deviation()
    assert deviations == pytest.approx({0: 0, 1: 0, 2: 0, 3: 0.4, 4: 0}, abs=1e-6)
    info = asked._goodput_cache.get_step_info()
    assert info is not None and info.ideal_step_time == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("late", ["V 2 gs://a 5 12", "S 2 11", "C e 9; c e 10"])
def test_b15_what_the_log_shows_late_is_counted(late: str) -> None:
    in_time = told(f"J 0; S 0 5; S 1 8; {late}; S 3 20; S 4 23")
    log = MemoryLog(entry for entry in in_time if entry not in told(late))
    warm = calculator(log)
    warm.get_job_goodput()
    for entry in told(late):
        log.write_cloud_logging_entry(entry)
    cold = calculator(log)
    assert warm.get_job_goodput(True) == cold.get_job_goodput(True)
    assert warm.get_job_goodput(True) == calculator(ListedLog(in_time)).get_job_goodput(True)


class TestB16Exclusions:
    entries = told("J 0; S 0 10; S 1 20; S 2 30; V 2 gs://a 4 31; S 3 40; j 50")

    def test_b16_they_leave_later_answers_alone(self) -> None:
        asked = calculator(ListedLog(self.entries))
        before = asked.get_job_goodput(True)
        info = asked._goodput_cache.get_goodput_info()
        asked.get_job_goodput_with_exclusions([(when(12), when(38))], True)
        assert asked._goodput_cache.get_goodput_info() == info
        assert asked.get_job_goodput(True) == before
        assert asked.get_job_goodput_details()["total_excluded_time"] == 0

    def test_b16_a_zone_named_utc_is_taken(self) -> None:
        zone = ZoneInfo("UTC")
        pair = (when(12).astimezone(zone), when(15).astimezone(zone))
        asked = calculator(ListedLog(self.entries))
        assert asked.get_job_goodput_with_exclusions([pair])[3] == 3.0


def test_b17_a_window_leaves_the_count_of_disruptions_alone() -> None:
    asked = calculator(ListedLog(told("J 0; S 0 5; S 1 10; S 2 15; J 20; S 1 25; S 2 30; j 35")))
    assert disruptions(asked) == 1
    assert asked.get_job_goodput_interval(when(22), when(40))[4] == 0
    assert asked.get_job_goodput_details()["disruption_count"] == 1
    assert disruptions(asked) == 1


def test_b21_entries_of_two_writers_count_once() -> None:
    entries = [*told("J 0; I 1; i 3"), *steps(0, 9), *told("V 9 gs://a 2 33; j 40")]
    once = calculator(ListedLog(entries))
    twice = calculator(ListedLog([entry for entry in entries for _ in range(2)]))
    assert twice.get_job_goodput(True) == once.get_job_goodput(True)
    assert disruptions(twice) == 0


def test_b24_retention_may_be_a_number_of_seconds() -> None:
    log = ListedLog([*told("J 0"), *steps(0, 4), *told("j 20")])
    asked = GoodputCalculator("job", "log", log, max_logs_retention_period=7 * 24 * 60 * 60)
    assert asked.max_logs_retention_period == timedelta(days=7)
    assert asked.get_job_goodput()[0] == 75.0


def test_b24_the_readmes_window_in_local_time() -> None:
    """Its `convert_pst_to_utc` does not exist; a zone says the same."""
    zone = ZoneInfo("America/Los_Angeles")
    begin = datetime(2023, 11, 14, 14, 13, tzinfo=zone)
    asked = calculator(ListedLog([*told("J 0"), *steps(0, 4)]))
    assert asked.get_job_goodput_interval(begin, begin + timedelta(hours=1))[3] == 17


def test_b25_a_job_name_may_be_a_path(tmp_path: Path) -> None:
    log = ListedLog([*told("J 0"), *steps(0, 4), *told("j 20")])
    asked = calculator(log, "team/project/run 1", str(tmp_path / "missing"))
    assert asked.get_job_goodput()[0] == 75.0
    assert list(tmp_path.iterdir()) == []
