"""Steps booked in their order: startup, productive time, stalls, laps."""

from __future__ import annotations

import random
from array import array

import pytest

from runwatch.views.goodput.books import (
    LEAST_STALL_NS,
    WARM_UP_STEPS,
    WINDOW,
    Books,
    Cell,
    Lap,
    Pace,
    median,
)
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.track import Piece

SECOND = 1_000_000_000
PRODUCTIVE, STARTUP, STALL = Spent.PRODUCTIVE, Spent.PROGRAM_STARTUP, Spent.STALL
PREP, IDLE, SAVE = Spent.TRAINING_PREPARATION, Spent.UNATTRIBUTED, Spent.CHECKPOINT_SAVE
LOAD = Spent.DATA_LOADING


def in_ns(pieces: list[Piece]) -> list[Piece]:
    return [(a * SECOND, b * SECOND, spent) for a, b, spent in pieces]


def cell(
    step: int,
    begin: int,
    end: int,
    *,
    lap: int = 0,
    gap: list[Piece] | None = None,
    inside: list[Piece] | None = None,
) -> Cell:
    return Cell(lap, step, begin * SECOND, in_ns(gap or []), end * SECOND, in_ns(inside or []))


def booked(*cells: Cell, start: int = 0, prior: int | None = None) -> Books:
    books = Books(start * SECOND)
    for each in cells:
        books.add(each)
    books.settle(None if prior is None else prior * SECOND)
    return books


def back_to_back(*lengths: int, first: int = 0, start: int = 0) -> list[Cell]:
    cells, now = [], start
    for number, length in enumerate(lengths, first):
        cells.append(cell(number, now, now + length))
        now += length
    return cells


def rows(books: Books) -> list[tuple[float, float, Spent]]:
    timeline = books.timeline
    found = timeline.intervals(timeline.start_ns, timeline.end_ns)
    return [(a / SECOND, b / SECOND, Spent(spent)) for a, b, spent in found]


# ── the first step ─────────────────────────────────────────────────────────────────────────────


def test_what_the_first_step_took_longer_than_usual_is_startup() -> None:
    books = booked(*back_to_back(8, 3, 3, 3, 3))
    assert rows(books) == [(0, 5, STARTUP), (5, 20, PRODUCTIVE)]
    assert books.inferred_ns == 3 * SECOND


def test_a_first_step_that_was_not_longer_has_no_startup() -> None:
    books = booked(*back_to_back(3, 3, 3))
    assert rows(books) == [(0, 9, PRODUCTIVE)]
    assert books.inferred_ns == 0


def test_before_the_first_step_is_preparation_and_that_is_inferred() -> None:
    books = booked(cell(0, 10, 20, gap=[(2, 5, LOAD)]), *back_to_back(10, first=1, start=20))
    assert rows(books) == [(0, 2, PREP), (2, 5, LOAD), (5, 10, PREP), (10, 30, PRODUCTIVE)]
    assert books.inferred_ns == 7 * SECOND


def test_where_a_compilation_was_recorded_nothing_is_guessed() -> None:
    first = cell(0, 0, 20, inside=[(1, 16, STARTUP)])
    books = booked(first, *back_to_back(3, 3, 3, 3, first=1, start=20))
    assert rows(books) == [(0, 1, PRODUCTIVE), (1, 16, STARTUP), (16, 32, PRODUCTIVE)]
    assert books.inferred_ns == 0


def test_startup_is_given_out_around_what_is_claimed() -> None:
    first = cell(0, 0, 20, inside=[(4, 8, LOAD)])
    books = booked(first, *back_to_back(6, 6, 6, 6, first=1, start=20))
    assert rows(books)[:4] == [
        (0, 4, STARTUP),
        (4, 8, LOAD),
        (8, 14, STARTUP),
        (14, 44, PRODUCTIVE),
    ]


def test_a_single_step_is_productive_where_nothing_is_known() -> None:
    assert rows(booked(*back_to_back(300))) == [(0, 300, PRODUCTIVE)]


@pytest.mark.parametrize(
    "lengths, prior, startup",
    [
        ((300,), 10, 290),  # one step: an earlier attempt knows better
        ((300, 20), 10, 290),
        ((300, 20, 20), 10, 290),
        ((300, 20, 20, 20), 10, 280),  # four are enough
        ((300, 20, 20), None, 280),
        ((5,), 10, 0),
    ],
)
def test_with_few_steps_an_earlier_attempts_pace_is_the_better_guess(
    lengths: tuple[int, ...], prior: int | None, startup: int
) -> None:
    found = [(a, b) for a, b, spent in rows(booked(*back_to_back(*lengths), prior=prior))
             if spent == STARTUP]  # fmt: skip
    assert sum(b - a for a, b in found) == startup


def test_the_first_steps_wait_until_sixteen_more_are_known() -> None:
    books = Books(0)
    cells = back_to_back(100, *[10] * WARM_UP_STEPS)
    for each in cells[:-1]:
        books.add(each)
        assert (books.end_ns, books.steps) == (0, 0)
    assert (books.first_step, books.last_step) == (0, WARM_UP_STEPS - 1)
    books.add(cells[-1])
    assert rows(books) == [(0, 90, STARTUP), (90, 260, PRODUCTIVE)]
    assert (books.steps, books.first_step, books.last_step) == (17, 0, 16)


# ── later steps ────────────────────────────────────────────────────────────────────────────────


def test_what_a_step_took_beyond_the_usual_is_a_stall_if_it_took_more_than_three_times_that() -> (
    None
):
    books = booked(*back_to_back(3, 3, 3, 3, 9, 3, 10, 3))
    assert rows(books) == [(0, 27, PRODUCTIVE), (27, 34, STALL), (34, 37, PRODUCTIVE)]
    assert books.inferred_ns == 3 * SECOND


def test_what_is_claimed_does_not_make_a_stall() -> None:
    slow = cell(4, 12, 35, inside=[(13, 33, SAVE)])
    books = booked(*back_to_back(3, 3, 3, 3), slow)
    assert rows(books) == [(0, 13, PRODUCTIVE), (13, 33, SAVE), (33, 35, PRODUCTIVE)]


def test_a_stall_is_given_out_around_what_is_claimed() -> None:
    slow = cell(4, 12, 112, inside=[(13, 33, SAVE)])
    books = booked(*back_to_back(3, 3, 3, 3), slow)
    assert rows(books)[1:] == [(13, 33, SAVE), (33, 35, PRODUCTIVE), (35, 112, STALL)]


def test_steps_shorter_than_a_millisecond_do_not_stall_by_jitter() -> None:
    pace = Pace(1_000)
    assert not pace.is_stall(LEAST_STALL_NS)
    assert pace.is_stall(LEAST_STALL_NS + 1_001)
    assert not Pace(None).is_stall(10**18)


def test_sub_second_steps_have_a_pace() -> None:
    """B12: in the original, steps under a second have no ideal time."""
    books = Books(0)
    for step in range(40):
        books.add(Cell(0, step, step * 1_000_000, [], (step + 1) * 1_000_000, []))
    assert books.pace.usual_ns == 1_000_000


def test_time_between_steps_that_nothing_claims_is_unattributed() -> None:
    books = booked(cell(0, 0, 10), cell(1, 15, 25, gap=[(11, 13, SAVE)]))
    assert rows(books) == [
        (0, 10, PRODUCTIVE), (10, 11, IDLE), (11, 13, SAVE), (13, 15, IDLE), (15, 25, PRODUCTIVE),
    ]  # fmt: skip


def test_a_step_that_begins_before_the_last_one_ended_has_the_time_after_it() -> None:
    """Ranks of a run may overlap by a step."""
    books = booked(cell(0, 0, 10), cell(1, 8, 22, inside=[(9, 12, SAVE)]), cell(2, 12, 32))
    assert rows(books) == [(0, 10, PRODUCTIVE), (10, 12, SAVE), (12, 32, PRODUCTIVE)]
    assert books.steps == 3


def test_the_usual_follows_a_lasting_change() -> None:
    books = booked(*back_to_back(*[3] * 20, *[8] * 600))
    assert books.pace.usual_ns == 8 * SECOND
    assert all(spent == PRODUCTIVE for _, _, spent in rows(books))


def test_a_lasting_change_beyond_the_limit_stalls_until_it_is_usual() -> None:
    books = booked(*back_to_back(*[3] * 20, *[30] * 600))
    stalled = sum(b - a for a, b, spent in rows(books) if spent == STALL)
    assert 0 < stalled < 27 * WINDOW
    assert books.pace.usual_ns == 30 * SECOND
    assert rows(books)[-1][2] == PRODUCTIVE


def test_the_middle_is_a_value_that_occurred() -> None:
    assert [median(values) for values in ([5], [1, 9], [3, 1, 2], [4, 1, 3, 2])] == [5, 1, 2, 2]


# ── many at once ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_plain_steps_at_once_are_booked_as_one_by_one(seed: int) -> None:
    dice = random.Random(seed)
    lengths = [dice.choice((2, 3, 3, 3, 4, 0, 3 + 12 * (dice.random() < 0.02))) for _ in range(800)]
    cells = back_to_back(*lengths)
    one_by_one = booked(*cells)
    at_once, at = booked(*cells[:20]), 20
    while at < len(cells):
        times = array("q", [c.begin_ns for c in cells[at : at + 100]])
        times.append(cells[min(at + 99, len(cells) - 1)].end_ns)
        done = at_once.extend(at, times)
        if not done:
            at_once.add(cells[at])
        at += done or 1
    assert at_once.state() == one_by_one.state()


def test_steps_are_not_taken_at_once_where_there_is_something_to_see() -> None:
    def times(*seconds: int) -> array[int]:
        return array("q", [second * SECOND for second in seconds])

    books = Books(0)
    assert books.extend(0, times(0, 3, 6)) == 0  # still warming up
    books = booked(*back_to_back(*[3] * 20))
    assert books.extend(20, times(61, 64)) == 0  # there is a gap before it
    assert books.extend(21, times(60, 63)) == 0  # a step is missing
    assert books.extend(20, times(60, 63, 90)) == 0  # one is a stall
    assert books.steps == 20
    assert books.extend(20, times(60, 63, 66)) == 2
    assert (books.steps, books.last_step, rows(books)) == (22, 21, [(0, 66, PRODUCTIVE)])


# ── laps ───────────────────────────────────────────────────────────────────────────────────────


def test_steps_that_go_back_are_a_new_lap() -> None:
    cells = [*back_to_back(10, 10, 10), cell(1, 30, 40, lap=1), cell(2, 40, 50, lap=1)]
    books = booked(*cells)
    assert [(lap.first_step, lap.last_step, len(lap)) for lap in books.laps] == [
        (0, 2, 3),
        (1, 2, 2),
    ]
    assert [lap.end_ns for lap in books.laps] == [30 * SECOND, 50 * SECOND]


def test_a_lap_finds_steps_also_where_numbers_are_missing() -> None:
    numbers = [0, 1, 2, 10, 11, 20, 35, 36]
    lap = Lap()
    for at, number in enumerate(numbers):
        lap.add(number, at * 10, at * 10 + 9)
    assert [lap.step_at(at) for at in range(len(lap))] == numbers
    for step in range(-3, 40):
        expected = next((at for at, number in enumerate(numbers) if number >= step), len(numbers))
        assert lap.index(step) == expected
    again = Lap.of_state(lap.state())
    assert [again.index(step) for step in range(40)] == [lap.index(step) for step in range(40)]
    assert (again.first_step, again.last_step) == (0, 36)


# ── forked and saved ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 5, WARM_UP_STEPS, WARM_UP_STEPS + 1, 40, 300])
def test_a_fork_goes_on_and_leaves_the_books_alone(count: int) -> None:
    cells = back_to_back(20, *[dice % 5 + 1 for dice in range(320)])
    books = Books(0)
    for each in cells[:count]:
        books.add(each)
    before = str(books.state())
    fork = books.fork()
    for each in cells[count:]:
        fork.add(each)
    assert str(books.state()) == before
    whole = booked(*cells)
    assert fork.pace == whole.pace
    assert (books.steps + fork.steps, fork.end_ns) == (whole.steps, whole.end_ns)
    assert rows(books) + rows(fork) == rows(whole) or rows(books)[-1][2] == rows(fork)[0][2]


@pytest.mark.parametrize("count", [0, 5, 17, 100])
def test_saved_books_go_on_as_if_nothing_had_happened(count: int) -> None:
    cells = back_to_back(20, *[dice % 5 + 1 for dice in range(120)])
    cells[3] = cells[3]._replace(gap=[(1, 2, SAVE)], inside=[(3, 4, LOAD)])
    first = Books(0)
    for each in cells[:count]:
        first.add(each)
    again = Books.of_state(first.state())
    for each in cells[count:]:
        first.add(each)
        again.add(each)
    assert again.state() == first.state()
