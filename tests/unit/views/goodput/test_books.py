"""Steps booked in their order: startup, productive time, stalls, laps."""

from __future__ import annotations

import random
from array import array

import pytest

from runwatch.views.goodput.books import AT_ONCE, WARM_UP_STEPS, Books
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.cells import Cell, Held
from runwatch.views.goodput.steps.judging import AROUND, Pace
from runwatch.views.goodput.steps.laps import Lap
from runwatch.views.goodput.steps.track import Piece

SECOND = 1_000_000_000
PRODUCTIVE, STARTUP, STALL = Spent.PRODUCTIVE, Spent.PROGRAM_STARTUP, Spent.STALL
PREP, IDLE, SAVE = Spent.TRAINING_PREPARATION, Spent.UNATTRIBUTED, Spent.CHECKPOINT_SAVE
LOAD, SLOW, DEGRADED = Spent.DATA_LOADING, Spent.SLOW_STEPS, Spent.DEGRADED_CAPACITY
CLOSED = AT_ONCE + AROUND
"""So many steps, and the first of them are booked."""


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
    ranks: int = 1,
) -> Cell:
    gaps, insides = in_ns(gap or []), in_ns(inside or [])
    return Cell(lap, step, begin * SECOND, gaps, end * SECOND, insides, ranks)


def booked(*cells: Cell, start: int = 0, prior: int | None = None) -> Books:
    books = Books(start * SECOND)
    for each in cells:
        books.add(each)
    books.settle(Pace.of(None if prior is None else prior * SECOND))
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
    assert books.inferred_ns == 8 * SECOND  # all of it may have been either


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


def test_a_single_step_is_productive_where_nothing_is_known_and_that_is_inferred() -> None:
    books = booked(*back_to_back(300))
    assert (rows(books), books.inferred_ns) == ([(0, 300, PRODUCTIVE)], 300 * SECOND)


def test_a_single_step_of_what_was_stopped_shows_no_more_than_that_it_began() -> None:
    books = Books(0)
    books.add(cell(0, 0, 300))
    books.settle(Pace(), only_begun=True)
    assert (rows(books), books.inferred_ns) == ([(0, 300, STARTUP)], 300 * SECOND)


def test_a_first_step_that_compiled_and_then_hung_is_a_stall() -> None:
    first = cell(0, 0, 220, inside=[(1, 16, STARTUP)])
    books = booked(first, *back_to_back(3, 3, 3, 3, first=1, start=220))
    assert rows(books) == [
        (0, 1, STALL), (1, 16, STARTUP), (16, 217, STALL), (217, 232, PRODUCTIVE),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lengths, prior, startup",
    [
        ((300,), 10, 290),  # one step: another attempt knows better
        ((300, 20), 10, 290),
        ((300, 20, 20), 10, 290),
        ((300, 20, 20, 20), 10, 280),  # three more are enough
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


def test_only_the_next_steps_say_how_long_the_first_should_have_taken() -> None:
    books = booked(*back_to_back(100, *[10] * WARM_UP_STEPS, *[50] * 200))
    assert rows(books)[0] == (0, 90, STARTUP)


def test_steps_are_held_until_enough_later_ones_are_known() -> None:
    books = Books(0)
    cells = back_to_back(100, *[10] * CLOSED)
    for each in cells[: CLOSED - 1]:
        books.add(each)
    assert (books.end_ns, books.steps) == (0, 0)
    assert (books.first_step, books.last_step) == (0, CLOSED - 2)
    books.add(cells[CLOSED - 1])
    end = 100 + 10 * (AT_ONCE - 1)
    assert rows(books) == [(0, 90, STARTUP), (90, end, PRODUCTIVE)]
    assert (books.steps, books.first_step, books.last_step) == (AT_ONCE, 0, CLOSED - 1)
    books.settle(Pace())
    assert books.steps == CLOSED


# ── later steps ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "long, over, spent", [(9, 0, PRODUCTIVE), (13, 10, SLOW), (15, 12, SLOW), (16, 13, STALL)]
)
def test_what_a_step_took_beyond_the_usual_is_slow_or_a_stall(
    long: int, over: int, spent: Spent
) -> None:
    books = booked(*back_to_back(*[3] * 20, long, *[3] * 20))
    assert sum(b - a for a, b, each in rows(books) if each == PRODUCTIVE) == 120 + long - over
    assert [(a, b, each) for a, b, each in rows(books) if each != PRODUCTIVE] == (
        [(63, 63 + over, spent)] if over else []
    )
    assert books.inferred_ns == over * SECOND


def test_the_time_before_a_step_that_nothing_claims_is_a_stall_too() -> None:
    after = back_to_back(3, 3, 3, 3, first=20, start=160)
    books = booked(*back_to_back(*[3] * 20), *after)
    assert rows(books) == [(0, 60, PRODUCTIVE), (60, 160, STALL), (160, 172, PRODUCTIVE)]
    assert books.inferred_ns == 100 * SECOND


def test_what_is_claimed_does_not_make_a_stall() -> None:
    slow = cell(4, 12, 35, inside=[(13, 33, SAVE)])
    books = booked(*back_to_back(3, 3, 3, 3), slow)
    assert rows(books) == [(0, 13, PRODUCTIVE), (13, 33, SAVE), (33, 35, PRODUCTIVE)]


def test_a_stall_is_given_out_around_what_is_claimed() -> None:
    slow = cell(5, 15, 115, inside=[(16, 36, SAVE)])
    books = booked(*back_to_back(3, 3, 3, 3, 3), slow)
    assert rows(books)[1:] == [(16, 36, SAVE), (36, 38, PRODUCTIVE), (38, 115, STALL)]


def test_sub_second_steps_have_a_pace() -> None:
    """B12: in the original, steps under a second have no ideal time."""
    books = Books(0)
    for step in range(40):
        books.add(Cell(0, step, step * 1_000_000, [], (step + 1) * 1_000_000, []))
    books.settle(Pace())
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


def test_a_lasting_change_is_no_stall_however_large_it_is() -> None:
    books = booked(*back_to_back(*[3] * 20, *[60] * 600))
    assert books.pace.usual_ns == 60 * SECOND
    assert all(spent == PRODUCTIVE for _, _, spent in rows(books))


# ── work that is handed over to a device ───────────────────────────────────────────────────────


def handed_over(count: int, *, wait: int) -> list[Cell]:
    """Steps of a second each, with the device waited for in every tenth; each time it has begun
    anew, something is loaded for `wait` seconds while it works."""
    cells = [cell(0, 0, 1)]
    for step in range(1, count):
        turn, at = divmod(step - 1, 10)
        begin = 1 + turn * 10
        if at == 9:
            cells.append(cell(step, begin + wait, begin + 10))
        elif at == 1:
            cells.append(cell(step, begin + wait, begin + wait, gap=[(begin, begin + wait, LOAD)]))
        else:
            cells.append(cell(step, begin + wait * (at > 0), begin + wait * (at > 0)))
    return cells


def test_what_is_done_while_a_device_works_costs_nothing() -> None:
    books = booked(*handed_over(101, wait=1))
    assert books.asynchronous
    assert rows(books)[1:] == [(1, 101, PRODUCTIVE)]
    assert books.inferred_ns >= 9 * SECOND  # nobody saw the device


def test_what_is_done_between_steps_that_wait_for_the_device_costs_its_time() -> None:
    books = booked(cell(0, 0, 3), *(cell(n, 5 * n, 5 * n + 3, gap=[(5 * n - 2, 5 * n, LOAD)])
                                    for n in range(1, 40)))  # fmt: skip
    assert not books.asynchronous
    assert sum(b - a for a, b, spent in rows(books) if spent == LOAD) == 2 * 39


# ── ranks that are missing ─────────────────────────────────────────────────────────────────────


def test_steps_that_fewer_ranks_do_are_degraded_by_their_share() -> None:
    cells = [cell(n, n * 4, n * 4 + 4, ranks=4 if n < 3 else 3) for n in range(6)]
    books = booked(*cells)
    assert rows(books) == [
        (0, 15, PRODUCTIVE), (15, 16, DEGRADED), (16, 19, PRODUCTIVE), (19, 20, DEGRADED),
        (20, 23, PRODUCTIVE), (23, 24, DEGRADED),
    ]  # fmt: skip
    assert books.capacity == 4


def test_for_a_step_or_two_nobody_is_missing() -> None:
    """Ranks end one after the other."""
    cells = [cell(n, n * 4, n * 4 + 4, ranks=4 if n < 3 else 3) for n in range(5)]
    assert rows(booked(*cells)) == [(0, 20, PRODUCTIVE)]


# ── a GPU that was waited for ──────────────────────────────────────────────────────────────────


MS = 1_000_000


def on_gpu(*cells: Cell) -> Books:
    books = Books(0)
    books.on_device = books.on_gpu = True
    for each in cells:
        books.add(each)
    books.settle(Pace())
    return books


def steps_of(ns: int, count: int = 8) -> list[Cell]:
    return [Cell(0, number, number * ns, [], (number + 1) * ns, []) for number in range(count)]


def idle_ns(books: Books) -> int:
    totals = [0] * len(Spent)
    books.timeline.add_totals(0, books.end_ns, totals)
    return totals[IDLE]


def test_a_gpu_that_was_waited_for_idles_until_a_step_is_handed_over() -> None:
    books = on_gpu(*steps_of(40 * MS))
    assert [(b - a, c) for a, b, c in books.timeline.intervals(40 * MS, 120 * MS)] == [
        (MS // 2, IDLE),
        (40 * MS - MS // 2, PRODUCTIVE),
        (MS // 2, IDLE),
        (40 * MS - MS // 2, PRODUCTIVE),
    ]
    assert books.inferred_ns == idle_ns(books) == 7 * MS // 2


def test_of_a_short_step_a_hand_over_is_a_share() -> None:
    assert idle_ns(on_gpu(*steps_of(2 * MS))) == 7 * 2 * MS // 20


def test_what_is_claimed_in_a_step_is_no_hand_over() -> None:
    cells = steps_of(40 * MS)
    begin = cells[3].begin_ns
    cells[3] = cells[3]._replace(inside=[(begin, begin + 4 * MS, SAVE)])
    found = list(on_gpu(*cells).timeline.intervals(begin, cells[3].end_ns))
    assert [(b - a, c) for a, b, c in found] == [
        (4 * MS, SAVE), (MS // 2, IDLE), (36 * MS - MS // 2, PRODUCTIVE)
    ]  # fmt: skip


def test_a_gpu_that_still_works_does_not_idle() -> None:
    """Read every fourth step: only the next one finds the GPU idle."""
    ends = [0]
    for number in range(40):
        ends.append(ends[-1] + (MS if number % 4 != 3 else 157 * MS))
    cells = [Cell(0, n, ends[n], [], ends[n + 1], []) for n in range(40)]
    books = on_gpu(*cells)
    assert books.asynchronous
    assert idle_ns(books) == 9 * MS // 2


def test_where_there_is_no_gpu_a_step_is_all_work() -> None:
    assert idle_ns(booked(*steps_of(40 * MS))) == 0


# ── many at once ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_plain_steps_at_once_are_booked_as_one_by_one(seed: int) -> None:
    dice = random.Random(seed)
    lengths = [
        dice.choice((2, 3, 3, 3, 4, 0, 3 + 12 * (dice.random() < 0.02))) for _ in range(3 * AT_ONCE)
    ]
    cells = back_to_back(*lengths)
    one_by_one, at_once, at = booked(*cells), Books(0), 0
    while at < len(cells):
        count = dice.choice((1, 20, 256))
        some = cells[at : at + count]
        if count == 1:
            at_once.add(some[0])
        else:
            at_once.extend(0, at, array("q", [*(c.begin_ns for c in some), some[-1].end_ns]))
        at += count
    at_once.settle(Pace())
    assert (rows(at_once), at_once.inferred_ns) == (rows(one_by_one), one_by_one.inferred_ns)
    assert (at_once.steps, at_once.pace) == (one_by_one.steps, one_by_one.pace)
    laps = [[lap.begins for lap in books.laps] for books in (at_once, one_by_one)]
    assert laps[0] == laps[1]


def test_held_steps_drop_from_the_front_with_what_is_claimed_of_them() -> None:
    held = Held()
    for each in (
        cell(0, 0, 3), cell(1, 5, 8, gap=[(3, 4, SAVE)]), cell(2, 8, 12, inside=[(9, 10, LOAD)]),
    ):  # fmt: skip
        held.add(each)
    took = held.took(0)
    assert [
        (own / SECOND, rest / SECOND) for own, rest in zip(took.own, took.rest, strict=True)
    ] == [(3, 0), (3, 1), (3, 0)]
    copy = held.copy()
    held.drop(1)
    assert (held.steps.tolist(), list(held.gaps), list(held.insides)) == ([1, 2], [0], [1])
    assert (len(copy), list(copy.gaps), list(copy.insides)) == (3, [1], [2])
    assert Held.of_state(copy.state()) == copy


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


@pytest.mark.parametrize("count", [0, 1, 5, CLOSED - 1, CLOSED, CLOSED + 40])
def test_a_fork_goes_on_and_leaves_the_books_alone(count: int) -> None:
    cells = back_to_back(20, *[dice % 5 + 1 for dice in range(CLOSED + 300)])
    books = Books(0)
    for each in cells[:count]:
        books.add(each)
    before = str(books.state())
    fork = books.fork()
    for each in cells[count:]:
        fork.add(each)
    fork.settle(Pace())
    assert str(books.state()) == before
    whole = booked(*cells)
    assert fork.pace == whole.pace
    assert (books.steps + fork.steps, fork.end_ns) == (whole.steps, whole.end_ns)
    spent = [sum(b - a for a, b, c in rows(books) + rows(fork) if c == each) for each in Spent]
    assert spent == [sum(b - a for a, b, c in rows(whole) if c == each) for each in Spent]


@pytest.mark.parametrize("count", [0, 5, CLOSED - 1, CLOSED, CLOSED + 40])
def test_saved_books_go_on_as_if_nothing_had_happened(count: int) -> None:
    cells = back_to_back(20, *[dice % 5 + 1 for dice in range(CLOSED + 120)])
    cells[3] = cells[3]._replace(gap=[(1, 2, SAVE)], inside=[(3, 4, LOAD)])
    first = Books(0)
    for each in cells[:count]:
        first.add(each)
    again = Books.of_state(first.state())
    for each in cells[count:]:
        first.add(each)
        again.add(each)
    assert again.state() == first.state()
