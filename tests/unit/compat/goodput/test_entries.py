from __future__ import annotations

import math
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.compat.goodput.log.entries import (
    TIME_FIELDS,
    AsPoint,
    Columns,
    Entry,
    Mark,
    Marks,
    from_event,
    from_mark,
    mark_of,
    time_ns_of,
    to_record,
)
from runwatch.record import NO_STEP
from runwatch.record.life import GoodputEntry

SAVE = {
    "job_name": "job",
    "event_type": "save",
    "step": 100,
    "directory": "gs://bucket/checkpoints",
    "checkpoint_manager_blocking_start_time": 12.5,
    "checkpoint_manager_blocking_duration_secs": 6.0,
    "synchronous": False,
    "preemption_received_at": None,
}
COUNTS = {
    "job_name": "job",
    "active_slices": 2,
    "total_slices": 4,
    "available_slices": 3,
    "elastic_slice_counts_timestamp": 7.0,
}


def timed(field: str) -> Entry:
    """An entry as recorders write it."""
    other = {"step_count": 7, "": None}.get(TIME_FIELDS[field], "Eval Step")
    return {"job_name": "job", field: 1_700_000_000.25} | (
        {TIME_FIELDS[field]: other} if TIME_FIELDS[field] else {}
    )


def back(record: AsPoint | GoodputEntry, job: str = "job") -> Entry:
    if isinstance(record, GoodputEntry):
        return from_event(record.body())
    mark = mark_of(record.metric, record.labels)
    assert mark is not None
    return from_mark(mark, record.step, record.value, job)


@pytest.mark.parametrize("field", TIME_FIELDS)
def test_an_entry_that_says_a_time_is_one_point(field: str) -> None:
    record = to_record(timed(field), "log")
    assert isinstance(record, AsPoint)
    assert record.metric == f"goodput.{field}"
    assert record.value == 1_700_000_000.25
    assert record.step == (7 if field == "step_start_time" else NO_STEP)
    typed = TIME_FIELDS[field].endswith("_type")
    assert record.labels == {"logger": "log"} | ({"type": "Eval Step"} if typed else {})
    assert back(record) == timed(field)


def test_there_is_a_point_for_every_time_that_recorders_write() -> None:
    assert len(TIME_FIELDS) == 15


@pytest.mark.parametrize("entry", [SAVE, COUNTS, {"job_name": "job"}])
def test_any_other_entry_is_one_event_with_all_its_fields(entry: Entry) -> None:
    record = to_record(entry, "log")
    assert record == GoodputEntry("log", entry)
    assert back(record) == entry


@pytest.mark.parametrize(
    "change",
    [
        {"step_count": "7"},
        {"step_count": 7.5},
        {"step_count": True},
        {"step_count": 2**63},
        {"step_start_time": None},
        {"step_start_time": "noon"},
        {"step_start_time": math.inf},
        {"more": 1},
    ],
)
def test_an_odd_entry_keeps_its_fields(change: dict[str, Any]) -> None:
    entry = timed("step_start_time") | change
    record = to_record(entry)
    assert isinstance(record, GoodputEntry)
    kept = back(record)
    assert kept == entry


@pytest.mark.parametrize("kind", ["", "x" * 201, None, 7])
def test_a_type_that_cannot_be_a_label_is_kept_with_its_entry(kind: object) -> None:
    entry = timed("custom_badput_event_start_time") | {"custom_badput_event_type": kind}
    record = to_record(entry)
    assert isinstance(record, GoodputEntry)
    assert back(record) == entry


@given(
    st.dictionaries(
        st.sampled_from(["job_name", *TIME_FIELDS, *TIME_FIELDS.values(), "event_type", "other"]),
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    )
)
def test_every_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert back(to_record(entry, "log"), entry.get("job_name")) == entry  # type: ignore[arg-type]


def test_other_series_and_events_are_not_entries() -> None:
    assert mark_of("loss", {}) is None
    assert mark_of("goodput.unheard_of", {}) is None
    with pytest.raises(ValueError, match="truncated_bytes"):
        from_event({"truncated_bytes": 10**6, "text": "{"})


def test_the_first_time_that_an_entry_names() -> None:
    assert time_ns_of(SAVE) == 12_500_000_000
    assert time_ns_of(COUNTS) == 7_000_000_000
    assert time_ns_of({"time": None, "a_time": math.inf, "start_time": 2}) == 2_000_000_000
    assert time_ns_of({"job_name": "job"}, 5) == 5


# ── columns ───────────────────────────────────────────────────────────────────────────────────


def some_columns() -> Columns:
    marks = Marks()
    step, start = marks.code(Mark("step_start_time")), marks.code(Mark("job_start_time"))
    assert marks.code(Mark("step_start_time")) == step
    return Columns(
        marks,
        array("I", [start, step, step]),
        array("q", [NO_STEP, 0, 1]),
        array("d", [1.0, 2.0, 3.0]),
        array("q", [10, 20, 30]),
        [(0, 5, {"a": 1}), (2, 25, {"b": 1}), (2, 26, {"c": 1}), (3, 35, {"d": 1})],
    )


def test_columns_give_their_entries_in_order() -> None:
    columns = some_columns()
    assert len(columns) == 7
    assert (columns.first_ns, columns.last_ns) == (5, 35)
    assert list(columns.timed("job")) == [
        (5, {"a": 1}),
        (10, {"job_name": "job", "job_start_time": 1.0}),
        (20, {"job_name": "job", "step_count": 0, "step_start_time": 2.0}),
        (25, {"b": 1}),
        (26, {"c": 1}),
        (30, {"job_name": "job", "step_count": 1, "step_start_time": 3.0}),
        (35, {"d": 1}),
    ]


@pytest.mark.parametrize("time_ns", [0, 5, 9, 10, 25, 26, 30, 34, 35, 99])
def test_columns_can_be_split_at_a_time(time_ns: int) -> None:
    whole = list(some_columns().timed("job"))
    first, rest = some_columns().split(time_ns)
    assert list(first.timed("job")) == [one for one in whole if one[0] <= time_ns]
    assert list(rest.timed("job")) == [one for one in whole if one[0] > time_ns]


def test_empty_columns_can_be_split() -> None:
    first, rest = Columns(Marks()).split(5)
    assert (len(first), len(rest)) == (0, 0)
