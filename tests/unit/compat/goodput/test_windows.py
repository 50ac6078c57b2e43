from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.windows import Window, bounds, look
from runwatch.compat.goodput.goodput_utils import BadputType, GoodputType
from tests.unit.compat.goodput.support import (
    BEGIN,
    DISRUPTED,
    Entry,
    Fixed,
    ListedLog,
    MemoryLog,
    by_name,
    calculator_of,
    moment,
    recorded,
    same,
    stories,
    told,
    when,
)


def calculator(story: str) -> GoodputCalculator:
    return GoodputCalculator("job", "log", ListedLog(told(story)), clock=Fixed())


@pytest.mark.parametrize("job", recorded(purposeful=False), ids=lambda job: job["name"])
def test_windows_are_those_of_the_original(job: dict[str, Any]) -> None:
    asked = calculator_of(job)
    for window, answer in zip(job["windows_asked"], job["windows"], strict=True):
        start, end = map(moment, window)
        if "error" in answer:
            with pytest.raises(ValueError):
                asked.get_job_goodput_interval(start, end)
            continue
        percent, badput, last, total, disruptions = asked.get_job_goodput_interval(start, end)
        assert same(percent, answer[0])
        assert same(by_name(badput), answer[1])
        assert (last, disruptions) == (answer[2], answer[4])
        assert total == pytest.approx(answer[3], abs=1e-6)


@pytest.mark.parametrize("job", recorded(purposeful=False), ids=lambda job: job["name"])
def test_details_of_windows_are_those_of_the_original(job: dict[str, Any]) -> None:
    asked = calculator_of(job)
    for window, answer in zip(job["windows_asked"], job["window_details"], strict=True):
        found: Any = asked.get_interval_metric_details(*map(moment, window))
        assert found.keys() == answer.keys()
        for name, amount in answer.items():
            shown = by_name(found[name]) if isinstance(amount, dict) else found[name]
            assert same(shown, amount), name


def test_worked_example() -> None:
    percent, badput, last, total, disruptions = calculator(DISRUPTED).get_job_goodput_interval(
        when(-1), when(25)
    )
    assert percent == pytest.approx(12 / 22 * 100)
    assert (last, total, disruptions) == (3, 22, 0)
    assert badput[BadputType.PROGRAM_STARTUP] == pytest.approx(5 / 22 * 100)


def test_the_first_generations_details_are_seconds() -> None:
    asked = calculator(DISRUPTED)
    details = asked.get_job_goodput_interval_details(when(-1), when(25))
    assert details["goodput_time_dict"] == {GoodputType.TOTAL: 12.0}
    assert details["badput_time_dict"][BadputType.TRAINING_PREP] == 2.0
    nothing = asked.get_job_goodput_interval_details(when(500), when(600))
    assert nothing == {"goodput_time_dict": {}, "badput_time_dict": {}}


def test_a_window_is_measured_by_its_entries() -> None:
    """B7: pinned; a hang at the end of a window is not seen."""
    percent, *_, total, _ = calculator("J 0; S 0 5; S 1 10; S 2 15").get_job_goodput_interval(
        when(4), when(5000)
    )
    assert (percent, total) == (100.0, 10.0)


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (when(100), when(200), "nothing was recorded"),
        (when(-9), when(1), "the same time"),
        (when(20), when(10), "is empty"),
        (when(20), when(20), "is empty"),
        (datetime(2024, 12, 16, 1, 5), when(10), r"no time zone.*datetime\(2024, 12, 16, tzinfo"),
        (when(0), datetime(2024, 12, 17), "the window's end, 2024-12-17 00:00:00"),
        (0.0, when(10), "pass a datetime"),
    ],
)
def test_windows_that_cannot_be(start: Any, end: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        calculator("J 0; S 0 5; S 1 10; j 30").get_job_goodput_interval(start, end)


def test_a_window_in_any_time_zone() -> None:
    asked = calculator(DISRUPTED)
    expected = asked.get_job_goodput_interval(when(-1), when(25))
    for zone in (ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata"), timezone(timedelta(hours=-8))):
        start, end = when(-1).astimezone(zone), when(25).astimezone(zone)
        assert asked.get_job_goodput_interval(start, end) == expected


def test_details_of_a_window_without_a_zone_are_an_error_too() -> None:
    asked = calculator(DISRUPTED)
    naive = datetime(2024, 1, 1), datetime(2024, 1, 2)
    for ask in (asked.get_interval_metric_details, asked.get_job_goodput_interval_details):
        for kind in (ValueError, TypeError):  # the second is what the original raises
            with pytest.raises(kind, match="time zone"):
                ask(*naive)


def test_a_window_before_what_the_log_gives_at_first() -> None:
    """A back end may give the last days only, unless it is asked for a window."""

    class LastDays(MemoryLog):
        def read_cloud_logging_entries(
            self, start_time: Any = None, end_time: Any = None, last_entry_info: Any = None
        ) -> tuple[list[Entry], Any]:
            start = start_time or when(1000)
            return super().read_cloud_logging_entries(start, end_time, last_entry_info)

    log = LastDays(told("J 0; S 0 5; S 1 8; S 2 11; S 3 2000; S 4 2010"))
    asked = GoodputCalculator("job", "log", log, clock=Fixed())
    assert asked.get_job_goodput_interval(when(4), when(20))[3] == 6
    assert asked.get_job_goodput_interval(when(1500), when(3000))[3] == 10


@given(stories(), st.floats(-5, 100), st.floats(0.01, 200))
def test_a_window_is_as_a_log_of_its_entries_alone(
    entries: list[Entry], start: float, length: float
) -> None:
    history = History()
    history.add(entries)
    after, until = bounds(when(start), when(start + length))
    alone = History()
    alone.add(e for e in entries if after < max(_times(e)) <= until)
    part = history.between(after, until)
    assert list(part.items()) == list(alone.items())
    window = when(start), when(start + length)
    assert _answer(history, *window) == _answer(alone, *window)


def _answer(history: History, start: datetime, end: datetime) -> Window | str:
    try:
        return look(history, start, end)
    except ValueError as error:
        return str(error)


def _times(entry: Entry) -> list[float]:
    return [v for k, v in entry.items() if "time" in k and v > BEGIN - 100]
