"""Which steps are out of line: small tables, in seconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.judging import (
    AROUND,
    FEW,
    LONGEST_STRETCH,
    Pace,
    Pause,
    Took,
    by_prior,
    is_asynchronous,
    is_plain,
    judge,
    pace_of,
    waits_outside,
)

SECOND = 1_000_000_000
SLOW, STALL, IN_LINE = Spent.SLOW_STEPS, Spent.STALL, Spent.PRODUCTIVE


def took(own: Sequence[float], rest: Sequence[float] | None = None) -> Took:
    found = Took()
    for step, (mine, before) in enumerate(zip(own, rest or [0] * len(own), strict=True)):
        found.add(step, round(mine * SECOND), round(before * SECOND))
    return found


def odd(found: Took, pauses: Sequence[Pause] = ()) -> dict[int, tuple[float, Spent]]:
    """Rows that are out of line: by how much, and what that is."""
    judged = judge(found, 0, pauses, len(found))
    return {
        row: ((over.own_ns + over.rest_ns) / SECOND, over.spent)
        for row, over in judged.excess.items()
    }


def among(*long: float, usual: float = 1, every: int = 20) -> list[float]:
    """Each long one behind `every` usual ones, and as many at the end."""
    return [ns for each in long for ns in (*[usual] * every, each)] + [usual] * every


# ── one that is long ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "long, usual, expected",
    [
        (9, 1, (8, SLOW)),
        (3, 1, None),  # not more than three times
        (3.1, 1, (2.1, SLOW)),
        (0.9, 0.01, None),  # by less than a second
        (10, 1, (9, SLOW)),  # within ten seconds nobody would say that it hangs
        (10.1, 1, (9.1, STALL)),
        (25, 5, (20, SLOW)),  # five times the usual
        (26, 5, (21, STALL)),
    ],
)
def test_a_step_is_slow_or_a_stall(
    long: float, usual: float, expected: tuple[float, Spent] | None
) -> None:
    found = odd(took(among(long, usual=usual)))
    if expected is None:
        assert found == {}
    else:
        ((over, spent),) = found.values()
        assert over == pytest.approx(expected[0])
        assert spent == expected[1]


def test_a_pause_that_went_well_may_take_half_as_long_again() -> None:
    before = [Pause(10_000, 20 * SECOND)]
    assert [spent for _, spent in odd(took(among(30)), before).values()] == [SLOW]
    assert [spent for _, spent in odd(took(among(31)), before).values()] == [STALL]


def test_the_time_before_a_step_is_judged_with_it() -> None:
    rest = [0.0] * 41
    rest[20] = 7
    judged = judge(took([1] * 41, rest), 0, (), 41)
    ((row, over),) = judged.excess.items()
    assert (row, over.own_ns, over.rest_ns, over.spent) == (20, 0, 7 * SECOND, SLOW)


def test_of_too_few_steps_nothing_is_said() -> None:
    assert odd(took([1] * (FEW - 1) + [100])) == {}
    assert len(odd(took([1] * FEW + [100]))) == 1


def test_by_another_attempts_pace_a_few_steps_may_be_stalls() -> None:
    prior = Pace.of(2 * SECOND)
    assert by_prior(took([2, 10]), prior).excess == {}
    ((row, over),) = by_prior(took([2, 11], [0, 4]), prior).excess.items()
    assert (row, over.own_ns, over.rest_ns, over.spent) == (1, 9 * SECOND, 4 * SECOND, STALL)
    assert by_prior(took([2, 1000]), Pace()).excess == {}


# ── what is the shape of a run ─────────────────────────────────────────────────────────────────


def test_what_recurs_is_in_line() -> None:
    every_50th = [8.0 if step and step % 50 == 0 else 1.0 for step in range(400)]
    assert {spent for _, spent in odd(took(every_50th)).values()} <= {IN_LINE}


def test_what_comes_now_and_then_is_not() -> None:
    lengths = [8.0 if step in (50, 113, 287) else 1.0 for step in range(400)]
    assert {row: spent for row, (_, spent) in odd(took(lengths)).items()} == dict.fromkeys(
        (50, 113, 287), SLOW
    )


def test_more_than_one_in_twenty_is_a_pace() -> None:
    assert odd(took([8.0 if step % 7 == 3 else 1.0 for step in range(400)])) == {}


def test_lengths_that_merely_vary_are_in_line() -> None:
    assert odd(took([1.02**step for step in range(200)])) == {}


def test_a_pace_that_changes_and_stays_is_in_line() -> None:
    assert odd(took([1] * 200 + [8] * 200)) == {}


@pytest.mark.parametrize(
    "length, is_odd", [(LONGEST_STRETCH, True), (LONGEST_STRETCH + 1, False), (10, True)]
)
def test_a_stretch_that_was_slower_than_before_and_after(length: int, is_odd: bool) -> None:
    found = odd(took([1] * 100 + [8] * length + [1] * 100))
    assert set(found) == (set(range(100, 100 + length)) if is_odd else set())
    assert {spent for _, spent in found.values()} <= {SLOW}


def test_stretches_that_come_and_go_are_the_shape_of_a_run() -> None:
    assert odd(took(([1] * 50 + [8] * 12) * 3 + [1] * 50)) == {}


def test_the_first_rows_are_judged_by_those_behind_them_only_as_far_as_they_reach() -> None:
    lengths = [1.0] * (3 * AROUND) + [8.0] * (2 * AROUND)
    lengths[2] = 8
    assert [row for row, (_, spent) in odd(took(lengths)).items() if spent == SLOW] == [2]


@pytest.mark.parametrize(
    "own, rest, plain",
    [([1, 1.9], [0, 0], True), ([1, 2], [0, 0], False), ([1, 1], [0, 0.1], False)],
)
def test_there_is_nothing_to_judge_where_all_are_alike(
    own: list[float], rest: list[float], plain: bool
) -> None:
    assert is_plain(took(own, rest), 0, 2) is plain


# ── the pace ───────────────────────────────────────────────────────────────────────────────────


def test_the_pace_is_the_mean_of_what_is_in_line() -> None:
    assert pace_of(took([1, 2, 3, 2]), (), Pace()).usual_ns == 2 * SECOND
    found = took(among(500))
    assert pace_of(found, [Pause(20, 500 * SECOND)], Pace()).usual_ns == SECOND


@pytest.mark.parametrize(
    "steps, prior, usual", [(0, 5, 5), (2, 5, 5), (FEW, 5, 1), (1, None, 1), (0, None, None)]
)
def test_with_few_steps_the_pace_is_another_attempts(
    steps: int, prior: int | None, usual: int | None
) -> None:
    before = Pace.of(None if prior is None else prior * SECOND)
    found = pace_of(took([1] * steps), (), before).usual_ns
    assert found == (None if usual is None else usual * SECOND)


def test_a_stall_is_longer_than_ten_seconds_and_five_times_the_usual() -> None:
    assert [Pace.of(SECOND).is_stall(s * SECOND) for s in (10, 11)] == [False, True]
    assert [Pace.of(4 * SECOND).is_stall(s * SECOND) for s in (20, 21)] == [False, True]
    assert not Pace().is_stall(10**18)


# ── work that is only handed over ──────────────────────────────────────────────────────────────


def test_steps_that_take_nothing_but_every_tenth_only_hand_work_over() -> None:
    assert is_asynchronous(took([*[0.001] * 9, 10] * 4))


@pytest.mark.parametrize("lengths", [[1.0] * 40, [1.0, 1.4] * 20, [1.0] * 20 + [3.0] * 20])
def test_steps_that_take_their_time_do_not(lengths: list[float]) -> None:
    assert not is_asynchronous(took(lengths))


@pytest.mark.parametrize("where", ["in a step", "between steps"])
def test_one_long_hang_does_not_make_the_other_steps_nothing(where: str) -> None:
    own, rest = [1.0] * 40, [0.0] * 40
    (own if where == "in a step" else rest)[25] = 1_800
    assert not is_asynchronous(took(own, rest))


def test_a_device_may_be_waited_for_between_steps() -> None:
    assert waits_outside(took([0.001] * 40, [1] * 40))
    assert waits_outside(took([1, 1, 0.001, 0.001] * 10, [0, 0, 8, 0] * 10))
    assert not waits_outside(took([1] * 40, [0.5] * 40))
    assert not waits_outside(took([0.001] * 40))


# ── few steps ──────────────────────────────────────────────────────────────────────────────────


def test_two_of_few_steps_that_a_person_would_call_hangs_are_hangs() -> None:
    found = took([1, 1, 61, 1, 1, 1, 121, 1, 1, 1, 1])
    assert not is_asynchronous(found)
    assert odd(found) == {2: (60, STALL), 6: (120, STALL)}


def test_two_of_few_steps_that_nobody_would_call_so_are_the_pace() -> None:
    assert odd(took([1, 1, 8, 1, 1, 1, 8, 1, 1, 1, 1])) == {}


def test_beside_steps_that_take_nothing_two_long_ones_are_waits_for_a_device() -> None:
    assert is_asynchronous(took([0.001] * 9 + [30] + [0.001] * 9 + [31] + [0.001] * 3))
