"""The calculator's answers: those of the original, and what it says when there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.goodput_cache import GoodputCache
from runwatch.compat.goodput.goodput_utils import BadputType, GoodputInfo, GoodputType, StepInfo
from runwatch.compat.goodput.log.entries import Columns, Mark, mark_of, to_record
from runwatch.record.life import GoodputEntry
from tests.unit.compat.goodput.support import (
    BEGIN,
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

PLAIN = "J 0; S 0 5; S 1 8; S 2 11; S 3 14; S 4 17; j 20"


def calculator(entries: list[Entry], now: float = BEGIN + 1000) -> GoodputCalculator:
    return GoodputCalculator("job", "log", ListedLog(entries), clock=Fixed(now))


class TestAsTheOriginal:
    """Jobs that scripts/record_goodput_answers.py made up, and what the original said of them."""

    @pytest.fixture(params=recorded(purposeful=False), ids=lambda job: job["name"])
    def job(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        found: dict[str, Any] = request.param
        return found

    def test_the_job(self, job: dict[str, Any]) -> None:
        asked = calculator_of(job)
        if "error" in job["answer"]:
            with pytest.raises(ValueError):
                asked.get_job_goodput(True)
            return
        percent, badput, last = asked.get_job_goodput(True)
        theirs, their_badput, their_last = job["answer"]
        assert same(percent, theirs)
        assert by_name(badput).keys() == their_badput.keys()
        assert same(by_name(badput), their_badput)
        assert last == their_last

    def test_its_seconds(self, job: dict[str, Any]) -> None:
        if "seconds" not in job:
            assert "error" in job["answer"]
            return
        asked = calculator_of(job)
        asked.get_job_goodput()
        info = asked._goodput_cache.get_goodput_info()
        assert info is not None and info.total_unproductive_time is not None
        found = {"productive": info.total_productive_time, **by_name(info.total_unproductive_time)}
        assert same(found, job["seconds"])
        assert info.last_recorded_step == job["last_recorded_step"]
        details: Any = asked.get_job_goodput_details()
        assert details["goodput_time"] == {GoodputType.TOTAL: info.total_productive_time}
        for name, amount in job["details"].items():
            if name != "ideal_step_time" or amount:  # of short steps ours has one, too
                assert same(details[name], amount), name

    def test_its_step_deviations(self, job: dict[str, Any]) -> None:
        asked = calculator_of(job)
        if "error" not in job["deviations"]:
            found = {str(step): time for step, time in asked.get_step_deviation().items()}
            assert same(found, job["deviations"])
            return
        try:
            found = {str(step): time for step, time in asked.get_step_deviation().items()}
        except ValueError:
            return
        info = asked._goodput_cache.get_step_info()
        assert info is not None and 0 < info.ideal_step_time < 1  # B12
        assert found


@pytest.mark.parametrize("job", recorded(purposeful=True), ids=lambda job: job["name"])
def test_where_ours_differs_it_is_right(job: dict[str, Any]) -> None:
    """`right` is what the original says about the same job, recorded without the trouble."""
    asked = calculator_of(job)
    percent, badput, last = asked.get_job_goodput(True)
    right = job["right"]
    assert same(percent, right["answer"][0])
    assert same(by_name(badput), right["answer"][1])
    assert last == right["answer"][2]
    details: Any = asked.get_job_goodput_details()
    assert details["disruption_count"] == right["details"]["disruption_count"]
    told_otherwise = "error" in job["answer"] or not (
        same(job["answer"][0], percent)
        and same(job["details"]["disruption_count"], details["disruption_count"])
    )
    assert told_otherwise, "the original is right by now: the job needs no purpose"


class TestAnswers:
    def test_goodput_alone(self) -> None:
        assert calculator(told(PLAIN)).get_job_goodput() == (75.0, {}, 4)

    def test_every_kind_is_told_of(self) -> None:
        _, badput, _ = calculator(told(PLAIN)).get_job_goodput(include_badput_breakdown=True)
        elastic = {k for k in BadputType if k.name.startswith("ELASTIC")}
        assert badput.keys() == set(BadputType) - elastic
        assert badput[BadputType.CUSTOM_BADPUT_EVENTS] == {}
        assert badput[BadputType.OTHER] == 25.0

    def test_a_job_that_goes_on_is_measured_until_now(self) -> None:
        clock = Fixed(BEGIN + 40)
        asked = GoodputCalculator("job", "log", ListedLog(told("J 0; S 0 5; S 1 15")), clock=clock)
        assert asked.get_job_goodput()[0] == 25.0
        clock.seconds += 60
        assert asked.get_job_goodput()[0] == 10.0

    def test_only_what_is_new_is_asked_for(self) -> None:
        log = MemoryLog(told("J 0; S 0 5; S 1 8"))
        asked = GoodputCalculator("job", "log", log, clock=Fixed())
        asked.get_job_goodput()
        for entry in told("S 2 11; S 3 14"):
            log.write_cloud_logging_entry(entry)
        assert asked.get_job_goodput()[2] == 2
        assert log.asked[0] is None
        before, number = log.asked[1]
        assert number == 2 and when(8) - timedelta(minutes=5) < before < when(8)

    def test_details_are_those_of_the_last_question(self) -> None:
        log = ListedLog(told("J 0; S 0 5; S 1 8"))
        asked = GoodputCalculator("job", "log", log, clock=Fixed())
        nothing = asked.get_job_goodput_details()
        assert nothing["goodput_time"] == {} and nothing["total_elapsed_time"] == 0.0
        asked.get_job_goodput()
        log.write_cloud_logging_entry(told("S 2 11")[0])
        details = asked.get_job_goodput_details()
        assert details["goodput_time"] == {GoodputType.TOTAL: 3.0}
        assert details["ideal_step_time"] == 3.0 and details["step_time_deviation"] == {0: 0.0}
        short = asked.get_job_goodput_details(include_step_deviation=False)
        assert short["step_time_deviation"] == {} and short["ideal_step_time"] == 0.0

    def test_a_configured_ideal_is_used(self) -> None:
        asked = calculator(told(PLAIN))
        asked.get_job_goodput(configured_ideal_step_time=2.0)
        assert asked.get_job_goodput_details()["ideal_step_time"] == 2.0
        assert asked.get_step_deviation(1.0) == {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}

    def test_what_callers_tests_look_at(self) -> None:
        asked = calculator(told(PLAIN))
        assert asked.job_name == "job" and asked.using_pathways is False
        assert asked._goodput_cache.get_goodput_info() is None
        asked.get_job_goodput()
        info = asked._goodput_cache.get_goodput_info()
        assert info is not None
        assert (info.total_productive_time, info.total_elapsed_time) == (15.0, 20.0)
        assert (info.max_productive_step, info.number_of_disruptions) == (4, 0)
        steps = asked._goodput_cache.get_step_info()
        assert steps is not None and steps.ideal_step_time == 3.0
        assert asked._goodput_cache.get_cached_entries() == told(PLAIN)
        assert asked._goodput_cache.get_job_end_time() == when(20)
        asked.sync_to_gcs()


class TestNoAnswer:
    @pytest.mark.parametrize(
        ("story", "says"),
        [
            ("", "no job_start_time among its 0 entries"),
            ("S 0 5; S 1 8; j 9", "no job_start_time among its 3 entries"),
            ("J 5; j 5", r"took 0\.0 s from its job_start_time"),
            ("J 5; S 0 6; j 4", r"took -1\.0 s"),
            ("J 10; S 0 5; S 1 8; S 2 21; j 20", "productive time is"),
        ],
    )
    def test_a_job_without_a_time(self, story: str, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            calculator(told(story)).get_job_goodput()

    @pytest.mark.parametrize("story", ["", "J 0; S 0 5", "J 0; S 0 5; S 2 8; S 4 9"])
    def test_steps_without_a_time(self, story: str) -> None:
        with pytest.raises(ValueError, match="two consecutive steps"):
            calculator(told(story)).get_step_deviation()

    @pytest.mark.parametrize("ideal", [0.0, -1.0, math.nan])
    def test_an_ideal_that_is_none(self, ideal: float) -> None:
        with pytest.raises(ValueError, match="configured_ideal_step_time"):
            calculator(told(PLAIN)).get_step_deviation(ideal)

    @pytest.mark.parametrize("period", [0, -5, math.inf, "7 days", timedelta(0)])
    def test_a_retention_that_is_none(self, period: Any) -> None:
        with pytest.raises(ValueError, match="max_logs_retention_period"):
            GoodputCalculator("job", "log", ListedLog(), max_logs_retention_period=period)


class TestOddEntries:
    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"job_name": "job"},
            {"job_name": "job", "step_start_time": None, "step_count": 3},
            {"job_name": "job", "step_start_time": "noon", "step_count": 3},
            {"job_name": "job", "step_start_time": math.nan, "step_count": 3},
            {"job_name": "job", "step_start_time": 1e300, "step_count": 3},
            {"job_name": "job", "step_start_time": BEGIN + 9},
            {"job_name": "job", "step_start_time": BEGIN + 9, "step_count": "three"},
            {"job_name": "job", "step_start_time": BEGIN + 9, "step_count": 2**80},
            {"job_name": "job", "job_end_time": None},
            {"job_name": "job", "elastic_slice_counts_timestamp": BEGIN + 9, "total_slices": 4},
            {"job_name": "job", "event_type": "save", "step": 1},
            "a line of text",
            None,
        ],
        ids=repr,
    )
    def test_they_do_no_harm(self, odd: Any) -> None:
        entries = told(PLAIN)
        asked = calculator([*entries[:3], odd, *entries[3:]])
        assert asked.get_job_goodput() == (75.0, {}, 4)

    def test_whole_numbers_in_any_form(self) -> None:
        entries = told(PLAIN)
        entries[2]["step_count"] = 1.0
        entries[3]["step_start_time"] = int(entries[3]["step_start_time"])
        assert calculator(entries).get_job_goodput() == (75.0, {}, 4)


class FirstGeneration:
    """A back end of the first generation: no cursor, and entries alone."""

    def __init__(self, entries: list[Entry]) -> None:
        self.log = MemoryLog(entries)

    def read_cloud_logging_entries(
        self, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> list[Entry]:
        return self.log.read_cloud_logging_entries(start_time, end_time)[0]


class NewestCursor(MemoryLog):
    """Always gives the newest cursor, with a datetime for an id."""

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        after = max(
            filter(None, (start_time, last_entry_info and last_entry_info[0])), default=None
        )
        chosen, _ = super().read_cloud_logging_entries(after, end_time)
        newest = moment(max(time for time, _, _ in self.rows)) if self.rows else None
        return chosen, (newest, newest)


class TestBackEnds:
    def test_one_of_the_first_generation(self) -> None:
        log = FirstGeneration(told("J 0; S 0 5; S 1 8"))
        asked = GoodputCalculator("job", "log", log, clock=Fixed())
        assert asked.get_job_goodput()[2] == 0
        for entry in told("S 2 11; j 20"):
            log.log.write_cloud_logging_entry(entry)
        assert asked.get_job_goodput() == (75.0, {}, 2)

    def test_one_with_ids_of_its_own_kind(self) -> None:
        log = NewestCursor(told("J 0; S 0 5; S 1 8"))
        asked = GoodputCalculator("job", "log", log, clock=Fixed())
        asked.get_job_goodput()
        asked.get_job_goodput()
        for entry in told("S 2 11; j 20"):
            log.write_cloud_logging_entry(entry)
        assert asked.get_job_goodput() == (75.0, {}, 2)
        assert asked.get_job_goodput_details()["disruption_count"] == 0

    @given(st.lists(st.integers(0, 6), min_size=12, max_size=12), st.integers(1, 4))
    def test_what_comes_late_is_put_in_its_place(self, delays: list[int], every: int) -> None:
        entries = told(
            "J 0; I 1; i 4; S 0 5; C e 6; c e 7; S 1 8; S 2 11; J 15; S 1 17; S 2 20; S 3 23"
        )
        log = MemoryLog()
        warm = GoodputCalculator("job", "log", log, clock=Fixed())
        waiting = list(zip(delays, entries, strict=True))
        for turn in range(8):
            for delay, entry in waiting:
                if delay == turn:
                    log.write_cloud_logging_entry(entry)
            if turn % every == 0:
                warm._refresh()
        log.write_cloud_logging_entry(told("j 30")[0])
        cold = calculator([*entries, *told("j 30")])
        assert warm.get_job_goodput(True) == cold.get_job_goodput(True)
        assert warm.get_step_deviation() == cold.get_step_deviation()


class ColumnLog:
    """A log that gives columns, as that of journals does."""

    def __init__(self) -> None:
        self.new: list[Entry] = []

    def read_columns(self) -> Iterator[Columns]:
        marks: list[Mark] = []
        columns = Columns(marks)
        for row, entry in enumerate(self.new):
            record = to_record(entry)
            if isinstance(record, GoodputEntry):
                columns.others.append((len(columns.code), row, entry))
                continue
            mark = mark_of(record.metric, record.labels)
            assert mark is not None
            marks.extend([mark] if mark not in marks else [])
            columns.code.append(marks.index(mark))
            columns.step.append(record.step)
            columns.seconds.append(record.value)
            columns.time_ns.append(row)
        self.new = []
        yield columns

    def read_cloud_logging_entries(self, **_: Any) -> tuple[list[Entry], Any]:
        raise AssertionError("columns are there to be read")


@given(stories(), st.data())
def test_columns_are_as_good_as_entries(entries: list[Entry], data: st.DataObject) -> None:
    log = ColumnLog()
    by_column = GoodputCalculator("job", "log", log, clock=Fixed())
    for start, end in pairwise(
        (0, *sorted(data.draw(st.lists(st.integers(0, len(entries)), max_size=4))), len(entries))
    ):
        log.new = [*entries[max(start - 2, 0) : start], *entries[start:end]]  # some come again
        by_column._refresh()
    by_entry = calculator(entries)
    by_entry._refresh()
    assert list(by_column._history.items()) == list(by_entry._history.items())
    assert by_column._fold.figures() == by_entry._fold.figures()


class TestCache:
    def test_the_first_generation_makes_one_without_arguments(self) -> None:
        cache = GoodputCache()
        assert cache.is_cache_empty() and cache.get_job_start_time() is None
        cache.update_cached_entries(told("J 0; S 0 5; j 9; j 12"))
        assert not cache.is_cache_empty()
        assert cache.get_job_start_time() == when(0)
        assert cache.get_job_end_time() == when(12)
        assert cache.get_last_entry_timestamp() == when(12)
        assert cache.get_step_entries() == told("S 0 5")
        for update in (
            cache.update_job_start_time,
            cache.update_job_end_time,
            cache.update_last_entry_timestamp,
            cache.sync_to_gcs,
        ):
            update()
        cache.clear_cache()
        assert cache.is_cache_empty() and cache.get_last_entry_timestamp() is None

    def test_it_keeps_what_it_is_given(self) -> None:
        cache = GoodputCache("job", cache_dir="/nowhere", gcs_path="gs://bucket")
        cache.update_cached_entries([], ("now", "7"))
        assert cache.get_last_entry_info() == ("now", "7")
        cache.update_last_entry_info((None, None))
        assert cache.get_last_entry_info() == (None, None)
        cache.update_goodput_info(GoodputInfo(5.0))
        cache.update_step_info(StepInfo(2.0, {1: 0.5}))
        assert cache.get_goodput_info() == GoodputInfo(5.0)
        assert cache.get_step_info() == StepInfo(2.0, {1: 0.5})
        cache.clear_cache()
        assert cache.get_goodput_info() is None and cache.get_step_info() is None


def test_a_list_that_the_log_keeps_is_left_alone() -> None:
    kept = [{"job_name": "job", "job_start_time": 0.0}]
    kept += [{"job_name": "job", "step_count": n, "step_start_time": 3.0 * n} for n in range(5)]
    kept += [{"job_name": "job", "job_end_time": 15.0}]
    before = list(kept)

    class Kept:
        def read_cloud_logging_entries(self, *_: object, **__: object) -> object:
            return kept, None

    class Copied:
        def read_cloud_logging_entries(self, *_: object, **__: object) -> object:
            return list(kept), None

    for log in (Kept(), Copied()):
        assert GoodputCalculator("job", "log", log).get_job_goodput()[2] == 4
    assert kept == before
