"""What a device was busy with while its program went on."""

from __future__ import annotations

import pytest

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.queueing import busy_until, uncovered

LOAD, SAVE, WORK = Spent.DATA_LOADING, Spent.CHECKPOINT_SAVE, Spent.PRODUCTIVE


def test_between_two_waits_steps_are_equally_long() -> None:
    """Ten are handed over at once, and the device is waited for in the last."""
    handed = [0] * 10
    assert busy_until(handed, [0] * 9 + [100], [0] * 9 + [100], ()).until == list(
        range(10, 101, 10)
    )


def test_a_device_that_had_nothing_to_do_begins_when_it_is_handed_a_step() -> None:
    """Three steps, of which the last was handed over late: it alone says how long it took."""
    assert busy_until([0, 0, 90], [0, 0, 100], [0, 0, 10], ()).until == [10, 20, 100]


def test_each_wait_ends_a_window_of_its_own() -> None:
    handed, ends = [0, 0, 20, 20], [0, 20, 20, 60]
    assert busy_until(handed, ends, [0, 20, 0, 20], ()).until == [10, 20, 40, 60]
    # … where the second is three times as long at most: a device that hangs does not work.
    assert busy_until(handed, [0, 20, 20, 120], [0, 20, 0, 20], ()).until == [10, 20, 50, 80]
    assert busy_until(handed, [0, 20, 20, 120], [0, 20, 0, 20], [3]).until == [10, 20, 35, 50]


def test_a_short_wait_is_no_wait_for_all() -> None:
    """It just lets the program not run too far ahead: the window goes on to the long one."""
    handed, ends = [0, 0, 5, 10, 15], [0, 5, 10, 15, 50]
    assert busy_until(handed, ends, [0, 5, 5, 5, 35], ()).until == [10, 20, 30, 40, 50]


def test_a_wait_that_steps_follow_which_take_nothing_was_for_all() -> None:
    """However short it was: had anything been left to do, they would have waited, too."""
    handed, ends = [0, 0, 20, 20, 20, 20], [0, 20, 20, 20, 20, 80]
    waits = [0, 20, 0, 0, 0, 60]
    assert busy_until(handed, ends, waits, ()).until == [10, 20, 35, 50, 65, 80]


def test_what_is_odd_says_nothing_about_the_usual() -> None:
    handed = [0, 10, 20, 1_020]
    ends = [10, 20, 1_020, 1_030]
    waits = [10, 10, 1_000, 10]
    assert busy_until(handed, ends, waits, [2]).until == [10, 20, 35, 1_030]


def test_the_device_is_never_done_before_it_was_handed_a_step() -> None:
    assert busy_until([50], [40], [0], ()).until == [50]
    assert busy_until([], [], [], ()).until == []


@pytest.mark.parametrize(
    "busy, expected, hidden",
    [
        (0, [(10, 20, LOAD)], 0),
        (10, [(10, 20, LOAD)], 0),
        (14, [(10, 14, WORK), (14, 20, LOAD)], 4),
        (20, [(10, 20, WORK)], 10),
        (99, [(10, 20, WORK)], 10),
    ],
)
def test_what_is_done_while_the_device_works_is_productive(
    busy: int, expected: list[tuple[int, int, int]], hidden: int
) -> None:
    assert uncovered([(10, 20, LOAD)], busy) == (expected, hidden)


@pytest.mark.parametrize("spent", [Spent.ACCELERATOR_INIT, Spent.ELASTIC_REINITIALIZATION, WORK])
def test_in_some_nothing_that_was_handed_over_goes_on(spent: Spent) -> None:
    pieces = [(10, 20, spent), (20, 30, SAVE)]
    assert uncovered(pieces, 25) == ([(10, 20, spent), (20, 25, WORK), (25, 30, SAVE)], 5)
