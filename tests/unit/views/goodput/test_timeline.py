"""A partition of time: appended, summed, cut, saved."""

from __future__ import annotations

import random

import pytest

from runwatch.vectors import Switch
from runwatch.views.goodput.classes import (
    FIRST_CUSTOM,
    MOST_CLASSES,
    SPAN_CLASSES,
    ClassNames,
    Spent,
)
from runwatch.views.goodput.timeline import MARK_EVERY, Interval, Timeline


def timeline(*intervals: tuple[int, int]) -> Timeline:
    found = Timeline(10)
    for end, spent in intervals:
        found.append(end, spent)
    return found


def everything(found: Timeline) -> list[Interval]:
    return list(found.intervals(found.start_ns, found.end_ns))


def totals(found: Timeline, start: int, end: int, classes: int = 8) -> list[int]:
    sums = [0] * classes
    found.add_totals(start, end, sums)
    return sums


def test_an_empty_one_ends_where_it_starts() -> None:
    found = Timeline(10)
    assert (found.end_ns, len(found), everything(found)) == (10, 0, [])
    assert totals(found, 0, 100) == [0] * 8


def test_neighbours_of_one_class_are_one_interval() -> None:
    found = timeline((20, 1), (30, 1), (35, 2), (40, 1))
    assert everything(found) == [(10, 30, 1), (30, 35, 2), (35, 40, 1)]


def test_an_end_that_does_not_lie_ahead_adds_nothing() -> None:
    found = timeline((10, 1), (5, 1), (20, 1), (20, 2), (15, 2))
    assert everything(found) == [(10, 20, 1)]


def test_a_window_is_clipped_to_the_timeline_and_cuts_intervals() -> None:
    found = timeline((20, 1), (30, 2), (40, 3))
    assert list(found.intervals(15, 32)) == [(15, 20, 1), (20, 30, 2), (30, 32, 3)]
    assert list(found.intervals(0, 100)) == everything(found)
    assert list(found.intervals(50, 60)) == list(found.intervals(25, 25)) == []
    assert totals(found, 15, 32)[1:4] == [5, 10, 2]
    assert totals(found, 0, 100)[1:4] == [10, 10, 10]
    assert totals(found, 32, 15) == totals(found, 60, 70) == [0] * 8


def test_totals_can_be_taken_away() -> None:
    found = timeline((20, 1), (30, 2))
    sums = totals(found, 10, 30)
    found.add_totals(10, 30, sums, sign=-1)
    assert sums == [0] * 8


@pytest.mark.parametrize("length", [1, MARK_EVERY - 1, MARK_EVERY, MARK_EVERY + 1, 3 * MARK_EVERY])
def test_any_window_sums_as_its_intervals_do_however_long_it_is(length: int) -> None:
    dice = random.Random(length)
    found = Timeline(0)
    for _ in range(length):
        found.append(found.end_ns + dice.randrange(1, 50), dice.randrange(8))
    for _ in range(50):
        start, end = sorted(dice.choices(range(-10, found.end_ns + 10), k=2))
        sums = [0] * 8
        for a, b, spent in found.intervals(start, end):
            sums[spent] += b - a
        assert totals(found, start, end) == sums


def test_it_can_go_on_after_it_was_summed_or_loaded() -> None:
    first = timeline((20, 1), (30, 2))
    totals(first, 10, 30)
    again = Timeline.of_state(first.state())
    for found in (first, again):
        found.append(40, 2)
        found.append(41, 7)
    assert everything(again) == everything(first) == [(10, 20, 1), (20, 40, 2), (40, 41, 7)]
    assert totals(again, 10, 41) == totals(first, 10, 41) == [0, 10, 20, 0, 0, 0, 0, 1]


# ── classes ────────────────────────────────────────────────────────────────────────────────────


def test_known_spans_have_their_class_and_others_one_of_their_own() -> None:
    names = ClassNames()
    assert names.of_span("checkpoint_save") == Spent.CHECKPOINT_SAVE
    assert names.of_span("compile") == Spent.PROGRAM_STARTUP
    assert names.of_span("profiling") == FIRST_CUSTOM == names.of_span("profiling")
    assert names.name(FIRST_CUSTOM) == "custom:profiling"
    assert names.name(Spent.STALL) == "stall"
    assert len(names) == FIRST_CUSTOM + 1


def test_a_custom_name_is_not_guessed_at() -> None:
    names = ClassNames()
    assert all(names.of_span(name) == known for name, known in SPAN_CLASSES.items())
    assert names.of_span("eval") != Spent.EVALUATION
    assert names.of_span("Evaluation") != Spent.EVALUATION


def test_names_beyond_what_a_byte_holds_share_a_class() -> None:
    names = ClassNames()
    found = [names.of_span(f"name {i}") for i in range(1_000)]
    assert len(set(found[: MOST_CLASSES - FIRST_CUSTOM])) == MOST_CLASSES - FIRST_CUSTOM
    assert max(found) < 256
    assert len(set(found[MOST_CLASSES:])) == 1
    assert names.name(found[-1]) == "custom:other"
    assert ClassNames(names.custom).of_span("name 7") == found[7]


@pytest.mark.parametrize("on", [True, False])
def test_the_long_ones_of_a_class(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy and without."""
    import numpy as np

    monkeypatch.setattr(Switch, "numpy", np)
    monkeypatch.setattr(Switch, "on", on)
    rng = random.Random(7)
    ends = sorted(rng.sample(range(11, 40_000), 2_000))
    found = timeline(*((end, rng.randrange(4)) for end in ends))
    for spent in range(5):
        for start, end, least in ((0, 50_000, 25), (500, 30_000, 1), (10, 39_000, 0)):
            expected = [
                interval
                for interval in found.intervals(start, end)
                if interval.spent == spent and interval.end_ns - interval.start_ns >= least
            ]
            assert list(found.of_class(spent, start, end, least)) == expected
            assert expected or spent == 4
    assert list(Timeline(10).of_class(0, 0, 100, 5)) == []
