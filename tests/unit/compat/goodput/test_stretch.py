"""Entries that are taken by the thousand end up as they do one by one."""

from __future__ import annotations

import math
from array import array
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.codes import SAVE, Checkpoint, Item, item_of
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.stretch import Stretch, jumps
from runwatch.compat.goodput.log.entries import Columns, Entry, Mark, from_mark
from runwatch.compat.goodput.log.following import _small_codes
from runwatch.journal.lanes import ROWS
from runwatch.record import NO_STEP

STEP = Mark("step_start_time")
MARKS = [
    STEP,
    Mark("job_start_time"),
    Mark("data_loading_start_time"),
    Mark("custom_badput_event_start_time", "eval"),
]


def state(history: History) -> tuple[Any, ...]:
    columns = (history.numbers, history.codes, history.places)
    moments = [(m.times, m.late_at, m.newest) for m in (history.steps, history.others)]
    items = [(code, repr(time), note) for code, time, note in history.items()]
    return items, columns, moments, history.note_at, history.newest


def taken(columns: Columns) -> tuple[Any, ...]:
    history = History()
    history.add_columns(columns)
    return state(history)


def taken_singly(columns: Columns) -> tuple[Any, ...]:
    history = History()
    for entry in columns.entries("job"):
        if (item := item_of(entry)) is not None:
            history.add_item(item)
    return state(history)


def save(step: int, time: float, **more: Any) -> Entry:
    return {
        "event_type": "save",
        "step": step,
        "checkpoint_manager_blocking_start_time": time,
        "checkpoint_manager_blocking_duration_secs": 1.5,
        **more,
    }


@st.composite
def stretches(draw: st.DrawFn) -> Columns:
    """Mostly steps that follow one another in time; now and then something else."""
    columns = Columns(MARKS, array(draw(st.sampled_from("BI"))))
    time, step = 100.0, draw(st.integers(0, 3))
    for row in range(draw(st.integers(0, 60))):
        odd = draw(st.integers(0, 20))
        code = odd - 15 if 15 < odd < 19 else 0
        time += {10: -3.0, 11: 0.0, 12: 1e11}.get(odd, 1.0)
        step += {13: -4, 14: 5, 15: 0}.get(odd, 1) if code == 0 else 0
        columns.add(code, NO_STEP if code else step, time, row)
        time -= 1e11 if odd == 12 else 0
        if odd == 20:
            stated = time + draw(st.sampled_from([0.5, 0.0, -5.0, 30.0]))
            columns.others.append((row + 1, row, save(step, stated)))
    return columns


@given(stretches())
def test_a_stretch_is_taken_as_its_entries_are(columns: Columns) -> None:
    assert taken(columns) == taken_singly(columns)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 3 * ROWS), max_size=5), st.lists(st.integers(0, 3 * ROWS)))
def test_a_long_stretch_too(leaps: list[int], back: list[int]) -> None:
    columns = Columns(MARKS, array("B"))
    step = 0
    for row in range(2 * ROWS + 10):
        step += -3 if row in leaps else 1
        columns.add(0, step, 100.0 + row - 5 * back.count(row), row)
    assert taken(columns) == taken_singly(columns)


def test_nothing_is_taken_of_no_entries() -> None:
    assert taken(Columns(MARKS)) == taken_singly(Columns(MARKS))


def test_a_time_that_is_no_number_is_rough() -> None:
    columns = Columns(MARKS, array("B", [0] * 4), array("q", range(4)))
    columns.seconds.extend([1.0, math.nan, 3.0, math.nan])
    stretch = Stretch(columns)
    assert [stretch.smooth_until(row) for row in range(4)] == [1, 2, 3, 4]


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20), st.integers(0, 30))
def test_all_jumps_are_found(numbers: list[int], more: int) -> None:
    column = array("q", [*numbers, *range(7, 7 + more)])
    expected = [i for i in range(1, len(column)) if column[i] != column[i - 1] + 1]
    assert jumps(column) == expected


# ── which series are which ────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.integers(0, 6), max_size=30),
    st.dictionaries(st.integers(0, 6), st.sampled_from([0, 1, 200, 256])),
    st.lists(st.sampled_from([255, 256, 257, 2**16, 2**24 + 1]), max_size=2),
)
def test_codes_are_bytes_where_they_fit(
    series: list[int], codes: dict[int, int], others: list[int]
) -> None:
    column = array("I", [*series, *others])
    found = _small_codes(column, codes)
    if found is not None:
        assert list(found) == [codes[number] for number in column]
    else:
        assert max(codes.values(), default=0) > 255 or not codes.keys() >= set(column)


def test_a_large_number_is_not_taken_for_its_last_byte() -> None:
    assert _small_codes(array("I", [1, 257]), {1: 5}) is None
    assert _small_codes(array("I", [1, 1]), {1: 5, 257: 9}) == array("B", [5, 5])


# ── the same checkpoint again ─────────────────────────────────────────────────────────────────


def fingerprint(entry: Any) -> int:
    item = item_of(entry)
    assert isinstance(item, Item) and item.code == SAVE and isinstance(item.note, Checkpoint)
    return item.note.fingerprint


def test_a_checkpoint_is_known_again_and_told_from_another() -> None:
    said = save(7, 1.0, host="a-" + str(1), note=float("nan"), parts=[1, {"x": None}])
    again = save(7, 1.0, host="a-1", note=float("nan"), parts=[1, {"x": None}])
    assert fingerprint(said) == fingerprint(again)
    different = [save(7, 1.0, host=host) for host in ("a", "b", -1, -2, 1, 1.0, True, None)]
    assert len({fingerprint(entry) for entry in different}) == len(different)


def test_a_checkpoint_of_other_objects_too() -> None:
    said, other = save(7, 1.0, host=Fraction(1, 3)), save(7, 1.0, host=Fraction(1, 2))
    assert fingerprint(said) == fingerprint(save(7, 1.0, host=Fraction(1, 3)))
    assert fingerprint(said) != fingerprint(other)
    assert fingerprint(MappingProxyType(said)) == fingerprint(MappingProxyType(dict(said)))


def test_an_entry_of_a_journal_is_the_entry_that_was_written() -> None:
    assert from_mark(STEP, 3, 1.5, "job") == {
        "job_name": "job",
        "step_count": 3,
        "step_start_time": 1.5,
    }
