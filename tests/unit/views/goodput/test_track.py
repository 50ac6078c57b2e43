"""One process's records as steps and what lies around them."""

from __future__ import annotations

from array import array

import pytest

from runwatch.views.goodput.classes import FIRST_CUSTOM, Spent
from runwatch.views.goodput.steps.track import (
    LATE_STEPS,
    RUN_STEPS,
    OpenState,
    Piece,
    Stale,
    Stride,
    Track,
    insert,
)

SAVE, LOAD, PREP = Spent.CHECKPOINT_SAVE, Spent.DATA_LOADING, Spent.TRAINING_PREPARATION
COMPILE, RESTORE = Spent.PROGRAM_STARTUP, Spent.CHECKPOINT_RESTORE
REINIT, WAIT = Spent.ELASTIC_REINITIALIZATION, Spent.ELASTIC_SLICE_DOWN
EPOCH = FIRST_CUSTOM


class Told:
    """A track and what it has handed on."""

    def __init__(self, start: int = 0) -> None:
        self.strides: list[Stride] = []
        self.track = Track("key", 0, start, lambda track, stride: self.strides.append(stride))

    @property
    def all(self) -> list[Stride]:
        return [*self.strides, *self.track.pending]

    @property
    def steps(self) -> list[tuple[int, int, int]]:
        """Number, begin, end."""
        return [(stride.step, stride.begin_ns, stride.end_ns) for stride in self.all]


def stride(step: int, since: int, begin: int, end: int, *, lap: int = 0) -> Stride:
    return Stride(lap, step, since, begin, end, [], [])


# ── steps ──────────────────────────────────────────────────────────────────────────────────────


def test_a_step_has_the_time_since_the_one_before_it() -> None:
    told = Told(start=3)
    told.track.begin(10, 0)
    told.track.end(20)
    told.track.begin(25, 1)
    told.track.end(40)
    assert told.all == [stride(0, 3, 10, 20), stride(1, 20, 25, 40)]
    assert (told.track.steps, told.track.own_ns) == (2, 25)


def test_completed_steps_wait_for_what_is_still_to_be_said_of_them() -> None:
    told = Told()
    for step in range(LATE_STEPS):
        told.track.begin(step * 10, step)
        told.track.end(step * 10 + 10)
    kept = [stride(step, step * 10, step * 10, step * 10 + 10) for step in range(LATE_STEPS)]
    assert (told.strides, told.track.pending, told.track.handed) == ([], kept, None)
    told.track.begin(LATE_STEPS * 10, LATE_STEPS)
    assert told.strides == []
    told.track.end(LATE_STEPS * 10 + 10)
    assert (told.strides, len(told.track.pending)) == (kept[:1], LATE_STEPS)
    assert told.track.handed == (0, 0)


def test_flushed_steps_are_handed_on_in_order() -> None:
    told = Told()
    for step in range(3):
        told.track.begin(step * 10, step)
    told.track.flush()
    assert (told.steps, told.track.pending) == ([(0, 0, 10), (1, 10, 20)], [])
    assert (told.track.handed, told.track.step) == ((0, 1), 2)
    told.track.flush()
    assert len(told.strides) == 2


def test_what_is_said_of_a_step_after_it_was_closed_is_stale() -> None:
    """It was handed on although something might still be said of it."""
    for say in ("waited", "elapsed"):
        told = Told()
        told.track.begin(0, 0)
        told.track.end(10)
        told.track.close_step()
        with pytest.raises(Stale, match="after it was handed on"):
            told.track.waited(0, 3) if say == "waited" else told.track.elapsed(12, 5, SAVE)


def test_a_closed_step_with_another_begun_since_is_left_alone() -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.end(10)
    told.track.close_step()
    told.track.begin(10, 1)
    told.track.waited(0, 3)
    told.track.elapsed(14, 3, SAVE)
    told.track.end(20)
    assert [(s.gap, s.inside) for s in told.all] == [([], []), ([], [(11, 14, SAVE)])]


def test_a_step_that_begins_ends_the_open_one() -> None:
    told = Told()
    for step, at in enumerate((5, 8, 11, 14)):
        told.track.begin(at, step)
    assert told.steps == [(0, 5, 8), (1, 8, 11), (2, 11, 14)]
    assert told.track.step == 3


def test_a_second_beginning_of_the_open_step_says_nothing_new() -> None:
    told = Told()
    for at in (5, 6, 9):
        told.track.begin(at, 0)
    told.track.end(10)
    assert told.steps == [(0, 5, 10)]


def test_an_end_without_a_beginning_is_nothing() -> None:
    told = Told()
    told.track.end(5)
    told.track.close(6, "save")
    told.track.begin(10, 0)
    told.track.end(20)
    told.track.end(30)
    assert told.all == [stride(0, 0, 10, 20)]


def test_the_end_of_another_step_than_the_open_one_is_nothing() -> None:
    told = Told()
    told.track.begin(0, 3)
    told.track.begin(5, 4)
    told.track.end(6, 3)
    told.track.end(10, 4)
    assert told.steps == [(3, 0, 5), (4, 5, 10)]


def test_a_time_before_the_one_said_before_counts_as_that_one() -> None:
    told = Told(start=10)
    told.track.begin(5, 0)
    told.track.end(20)
    told.track.open(15, SAVE, 1)
    told.track.close(12, 1)
    told.track.begin(18, 1)
    told.track.end(30)
    assert told.all == [stride(0, 10, 10, 20), stride(1, 20, 20, 30)]


@pytest.mark.parametrize("again, lap", [(5, 0), (4, 1), (2, 1), (0, 1)])
def test_a_number_that_is_not_higher_goes_back(again: int, lap: int) -> None:
    told = Told()
    for at, step in enumerate((3, 4, again)):
        told.track.begin(at * 10, step)
        told.track.end(at * 10 + 9)
    assert [(s.lap, s.step) for s in told.all] == [(0, 3), (0, 4), (lap, again)]


def test_every_tenth_step_is_as_good_as_every_step() -> None:
    told = Told()
    for step in (0, 10, 20, 30):
        told.track.begin(step, step)
    assert [(s.lap, s.step) for s in told.all] == [(0, 0), (0, 10), (0, 20)]


def test_a_step_without_a_number_is_the_next() -> None:
    told = Told()
    assert told.track.next_step == 0
    told.track.begin(0, 7)
    assert told.track.next_step == 8


def test_many_beginnings_at_once_are_as_many() -> None:
    times, numbers = array("q", [0, 10, 20, 20, 35]), array("q", [0, 1, 2, 2, 3])
    one_by_one, at_once = Told(), Told()
    for time, number in zip(times, numbers, strict=True):
        one_by_one.track.begin(time, number)
    at_once.track.begins(times, numbers)
    assert at_once.all == one_by_one.all
    assert at_once.track.opened(40) == one_by_one.track.opened(40)


class Booker(Told):
    """Takes plain steps at once, if it can."""

    def __init__(self, most: int = RUN_STEPS) -> None:
        super().__init__()
        self.runs: list[tuple[int, list[int]]] = []
        self.most = most
        self.track = Track("key", 0, 0, self._one, self._many)

    def _one(self, track: Track, stride: Stride) -> None:
        self.strides.append(stride)

    def _many(self, step: int, times: array[int]) -> int:
        if len(times) - 1 > self.most:
            return 0
        self.runs.append((step, times.tolist()))
        return len(times) - 1

    @property
    def done(self) -> list[tuple[int, int]]:
        """Number and end, however it was handed on."""
        found = [(stride.step, stride.end_ns) for stride in self.all]
        for step, times in self.runs:
            found += list(enumerate(times[1:], step))
        return sorted(found)


@pytest.mark.parametrize("batches", [[600], [1, 599], [100, 100, 400], [256, 256, 88]])
def test_plain_steps_are_handed_on_at_once_and_the_last_few_are_kept_back(
    batches: list[int],
) -> None:
    booker, now = Booker(), 0
    for count in batches:
        numbers = range(now, now + count)
        booker.track.begins(array("q", (n * 10 for n in numbers)), array("q", numbers))
        now += count
    assert booker.runs
    assert booker.done == [(n, n * 10 + 10) for n in range(599)]
    assert (booker.track.step, booker.track.steps, booker.track.own_ns) == (599, 599, 5990)
    assert 0 < len(booker.track.pending) <= LATE_STEPS


@pytest.mark.parametrize("why", ["a gap", "a number is missing", "nobody takes them"])
def test_steps_are_not_handed_on_at_once_where_there_is_more_to_see(why: str) -> None:
    booker = Booker(most=0 if why == "nobody takes them" else RUN_STEPS)
    booker.track.begin(0, 0)
    if why == "a gap":
        booker.track.end(5)
    numbers = [n + (why == "a number is missing" and n > 4) for n in range(1, 20)]
    booker.track.begins(array("q", (n * 10 for n in numbers)), array("q", numbers))
    assert not booker.runs
    assert len(booker.done) == 19


def test_after_a_step_in_which_something_else_was_done_plain_ones_are_handed_on_at_once() -> None:
    booker = Booker()
    booker.track.begin(0, 0)
    booker.track.open(5, SAVE, 1)
    booker.track.close(7, 1)
    booker.track.begins(array("q", range(10, 200, 10)), array("q", range(1, 20)))
    assert [step for step, _ in booker.runs] == [1]
    assert [stride.inside for stride in booker.all if stride.step == 0] == [[(5, 7, SAVE)]]
    assert len(booker.done) == 19


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


def gap_of(*moves: tuple[str, int, int, object]) -> list[Piece]:
    """What is claimed before a step at 100."""
    told = Told()
    for what, at, spent, key in moves:
        if what == "open":
            told.track.open(at, spent, key)
        else:
            told.track.close(at, key)
    told.track.begin(100, 0)
    told.track.end(110)
    return told.all[0].gap


def test_a_span_claims_its_time() -> None:
    assert gap_of(("open", 10, SAVE, 1), ("close", 30, SAVE, 1)) == [(10, 30, SAVE)]


def test_of_nested_spans_the_inner_has_the_time() -> None:
    moves = [
        ("open", 0, PREP, 1), ("open", 10, RESTORE, 2), ("close", 40, RESTORE, 2),
        ("close", 50, PREP, 1),
    ]  # fmt: skip
    assert gap_of(*moves) == [(0, 10, PREP), (10, 40, RESTORE), (40, 50, PREP)]


def test_of_overlapping_spans_the_later_has_the_time() -> None:
    moves = [
        ("open", 0, PREP, 1), ("open", 10, LOAD, 2), ("close", 20, PREP, 1),
        ("close", 30, LOAD, 2),
    ]  # fmt: skip
    assert gap_of(*moves) == [(0, 10, PREP), (10, 20, LOAD), (20, 30, LOAD)]


def test_all_of_an_elastic_reinitialisation_is_that() -> None:
    moves = [
        ("open", 0, REINIT, 1), ("open", 5, Spent.ACCELERATOR_INIT, 2),
        ("close", 10, REINIT, 2), ("open", 10, PREP, 3), ("close", 15, PREP, 3),
        ("close", 20, REINIT, 1), ("open", 20, PREP, 4), ("close", 30, PREP, 4),
    ]  # fmt: skip
    pieces = gap_of(*moves)
    assert sum(b - a for a, b, spent in pieces if spent == REINIT) == 20
    assert pieces[-1] == (20, 30, PREP)


def test_an_elapsed_inside_an_elastic_wait_says_nothing() -> None:
    told = Told()
    told.track.open(10, WAIT, 1)
    told.track.elapsed(18, 5, RESTORE)
    told.track.close(20, 1)
    told.track.begin(20, 0)
    told.track.end(30)
    assert told.all[0].gap == [(10, 20, WAIT)]


def test_a_known_span_that_is_open_when_a_step_begins_ended_there() -> None:
    told = Told()
    told.track.open(10, SAVE, 1)
    told.track.begin(20, 0)
    told.track.end(30)
    told.track.close(35, 1)
    told.track.begin(40, 1)
    told.track.end(50)
    assert told.all == [
        Stride(0, 0, 0, 20, 30, [(10, 20, SAVE)], []),
        stride(1, 30, 40, 50),
    ]
    assert told.track.inferred_ns == 10


def test_a_span_of_the_users_own_encloses_steps() -> None:
    told = Told()
    told.track.open(5, EPOCH, 1)
    for step, (begin, end) in enumerate(((10, 20), (25, 35))):
        told.track.begin(begin, step)
        told.track.end(end)
    told.track.close(40, 1)
    told.track.begin(50, 2)
    told.track.end(60)
    assert [stride.gap for stride in told.all] == [
        [(5, 10, EPOCH)], [(20, 25, EPOCH)], [(35, 40, EPOCH)],
    ]  # fmt: skip
    assert [stride.inside for stride in told.all] == [[], [], []]
    assert told.track.inferred_ns == 0


def test_within_a_step_only_spans_that_began_in_it_have_a_say() -> None:
    told = Told()
    told.track.open(5, EPOCH, 1)
    told.track.begin(10, 0)
    told.track.open(12, SAVE, 2)
    told.track.close(15, 2)
    told.track.close(18, 1)
    told.track.end(20)
    assert (told.all[0].gap, told.all[0].inside) == ([(5, 10, EPOCH)], [(12, 15, SAVE)])


def test_a_span_across_the_end_of_a_step_has_time_on_both_sides() -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.open(6, EPOCH, 1)
    told.track.end(10)
    told.track.close(14, 1)
    told.track.begin(20, 1)
    told.track.end(30)
    assert told.all[0].inside == [(6, 10, EPOCH)]
    assert told.all[1].gap == [(10, 14, EPOCH)]


def test_a_named_span_that_begins_again_was_not_ended() -> None:
    told = Told()
    told.track.open(0, LOAD, "data_loading")
    told.track.open(10, LOAD, "data_loading")
    told.track.close(15, "data_loading")
    told.track.begin(20, 0)
    told.track.end(30)
    assert told.all[0].gap == [(0, 10, LOAD), (10, 15, LOAD)]
    assert told.track.inferred_ns == 10


def test_numbered_spans_of_one_kind_may_nest() -> None:
    pieces = gap_of(
        ("open", 0, SAVE, 1), ("open", 5, SAVE, 2), ("close", 8, SAVE, 2), ("close", 12, SAVE, 1)
    )
    assert [(pieces[0][0], pieces[-1][1])] == [(0, 12)]
    assert {spent for _, _, spent in pieces} == {SAVE}


# ── stretches known at their end ───────────────────────────────────────────────────────────────


def test_an_elapsed_claims_the_time_before_it() -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.elapsed(8, 5, COMPILE)
    told.track.end(10)
    assert told.all[0].inside == [(3, 8, COMPILE)]
    assert told.track.own_ns == 5


def test_an_elapsed_may_reach_back_into_the_step_before() -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.end(10)
    told.track.elapsed(14, 6, SAVE)
    told.track.begin(20, 1)
    told.track.elapsed(22, 5, LOAD)
    told.track.end(30)
    assert told.all[0].inside == [(8, 10, SAVE)]
    assert told.all[1].gap == [(10, 14, SAVE), (17, 20, LOAD)]
    assert told.all[1].inside == [(20, 22, LOAD)]


def test_an_elapsed_has_the_time_that_no_ended_span_has() -> None:
    told = Told()
    told.track.open(10, PREP, 1)
    told.track.open(20, RESTORE, 2)
    told.track.close(30, 2)
    told.track.elapsed(40, 30, COMPILE)
    told.track.close(50, 1)
    told.track.begin(60, 0)
    told.track.end(70)
    assert told.all[0].gap == [
        (10, 20, PREP), (20, 30, RESTORE), (30, 40, COMPILE), (40, 50, PREP),
    ]  # fmt: skip


@pytest.mark.parametrize("nanoseconds", [0, -5])
def test_an_elapsed_of_nothing_claims_nothing(nanoseconds: int) -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.elapsed(8, nanoseconds, COMPILE)
    told.track.end(10)
    assert told.all[0].inside == []


def test_an_elapsed_has_a_say_in_the_steps_that_are_kept_back() -> None:
    told = Told()
    for step in range(LATE_STEPS + 2):
        told.track.begin(step * 10, step)
        told.track.end(step * 10 + 9)
    told.track.elapsed(5, 4, SAVE)  # in step 0, which was handed on
    told.track.elapsed(26, 4, SAVE)  # in step 2, the first that is kept back
    assert [stride.inside for stride in told.all] == [[], [], [(22, 26, SAVE)], [], [], []]


def test_the_wait_for_data_ends_where_the_step_begins() -> None:
    told = Told()
    told.track.begin(10, 0)
    told.track.end(20)
    told.track.waited(0, 4)
    told.track.begin(25, 1)
    told.track.end(30)
    told.track.waited(1, 99)
    assert [stride.gap for stride in told.all] == [[(6, 10, LOAD)], [(20, 25, LOAD)]]


def test_a_wait_has_a_say_in_the_steps_that_are_kept_back() -> None:
    told = Told()
    for step in range(LATE_STEPS + 1):
        told.track.begin(step * 10, step)
        told.track.end(step * 10 + 5)
    told.track.waited(0, 3)  # it was handed on already
    told.track.waited(1, 3)
    told.track.waited(99, 3)  # there is none
    assert [stride.gap for stride in told.all] == [[], [(7, 10, LOAD)], [], [], []]


# ── now ────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_open_is_claimed_until_now() -> None:
    told = Told()
    told.track.begin(0, 0)
    told.track.end(10)
    told.track.open(12, SAVE, 1)
    assert told.track.opened(20) == OpenState(10, None, [(12, 20, SAVE)], [])
    told.track.close(22, 1)
    told.track.begin(30, 1)
    told.track.open(32, LOAD, 2)
    assert told.track.opened(40) == OpenState(10, 30, [(12, 22, SAVE)], [(32, 40, LOAD)])
    assert told.track.opened(40) == told.track.opened(40)


def test_blank_is_before_anything_was_recorded() -> None:
    for move in ("begin", "open"):
        told = Told(start=5)
        assert told.track.is_blank
        told.track.begin(5, 0) if move == "begin" else told.track.open(5, SAVE, 1)
        assert not told.track.is_blank


@pytest.mark.parametrize(
    "start, end, expected",
    [
        (0, 5, [(0, 5, 9), (10, 20, 1), (30, 40, 2)]),
        (5, 15, [(5, 10, 9), (10, 20, 1), (30, 40, 2)]),
        (12, 18, [(10, 20, 1), (30, 40, 2)]),
        (15, 35, [(10, 20, 1), (20, 30, 9), (30, 40, 2)]),
        (0, 50, [(0, 10, 9), (10, 20, 1), (20, 30, 9), (30, 40, 2), (40, 50, 9)]),
        (40, 50, [(10, 20, 1), (30, 40, 2), (40, 50, 9)]),
        (25, 25, [(10, 20, 1), (30, 40, 2)]),
        (25, 22, [(10, 20, 1), (30, 40, 2)]),
    ],
)
def test_inserting_claims_what_nobody_has(start: int, end: int, expected: list[Piece]) -> None:
    pieces = [(10, 20, 1), (30, 40, 2)]
    insert(pieces, start, end, 9)
    assert pieces == expected
