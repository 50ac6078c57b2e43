"""Ranks meet step by step; the run goes back when all of them do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.meetings import BEYOND, At, Meeting
from runwatch.views.goodput.steps.muster import Muster
from runwatch.views.goodput.steps.track import Piece, Stride, Track

LOAD, SAVE = Spent.DATA_LOADING, Spent.CHECKPOINT_SAVE


def stride(
    step: int, begin: int, end: int, *, lap: int = 0,
    gap: Iterable[Piece] = (), inside: Iterable[Piece] = (),
) -> Stride:  # fmt: skip
    return Stride(lap, step, 0, begin, end, list(gap), list(inside))


class Ranks:
    """Some ranks and where they meet."""

    def __init__(self, *starts: int) -> None:
        self.muster = Muster()
        self.tracks: dict[str, Track] = {}
        for start in starts:
            self.join(start)

    def join(self, start: int) -> int:
        rank = len(self.tracks)
        track = Track(f"rank {rank}", rank, start, lambda track, stride: None)
        self.tracks[track.key] = track
        return rank

    def does(
        self, rank: int, steps: Iterable[int], at: int, *, lap: int = 0, reached: At | None = None
    ) -> None:
        """Steps of ten, one after the other from `at` on."""
        track = self.tracks[f"rank {rank}"]
        for step in steps:
            self.muster.take(track, stride(step, at, at + 10, lap=lap), reached)
            at = track.now_ns = at + 10

    def ends(self, rank: int) -> None:
        self.tracks[f"rank {rank}"].ended = True

    def settle(self) -> dict[At, int]:
        """How many ranks did each step."""
        self.muster.settle(self.tracks)
        return {at: met.ranks for at, met in sorted(self.muster.meetings.items())}

    @property
    def passed(self) -> At | None:
        return self.muster.passed([key for key, track in self.tracks.items() if not track.ended])


# ── a meeting ──────────────────────────────────────────────────────────────────────────────────

QUICK = stride(3, 10, 50, gap=[(0, 1, SAVE)], inside=[(40, 50, LOAD)])
LATE = stride(3, 30, 45, gap=[(20, 30, LOAD)], inside=[(31, 32, SAVE)])
LAST = stride(3, 10, 60, gap=[(5, 10, SAVE)], inside=[(50, 60, SAVE)])


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_step_lasts_from_the_last_to_begin_to_the_last_to_end_whoever_is_heard_first(
    order: tuple[int, ...],
) -> None:
    strides = (QUICK, LATE, LAST)
    met = Meeting.of(strides[order[0]], order[0])
    for rank in order[1:]:
        met.join(strides[rank], rank)
    assert met.cell((0, 3)) == (0, 3, 30, LATE.gap, 60, LAST.inside, 3)
    assert met.awaited == (1, 20)  # it began 20 after the first; the end is only 15 apart


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_meetings_merge_as_ranks_join(order: tuple[int, ...]) -> None:
    strides = (QUICK, LATE, LAST)
    joined, merged = (Meeting.of(strides[order[0]], order[0]) for _ in range(2))
    for rank in order[1:]:
        joined.join(strides[rank], rank)
        merged.merge(Meeting.of(strides[rank], rank))
    assert joined == merged


def test_a_tie_goes_to_the_lower_rank() -> None:
    for order in ((0, 2), (2, 0)):
        met = Meeting.of(QUICK, order[0])
        met.join(QUICK, order[1])
        assert (met.begun_last, met.ended_last, met.awaited) == (0, 0, (0, 0))


# ── together ───────────────────────────────────────────────────────────────────────────────────


def test_who_ends_a_step_last_is_awaited_though_all_began_together() -> None:
    """A rank that computes three times as long, in a job whose ranks meet between steps."""
    met = Meeting.of(stride(0, 0, 10), 0)
    met.join(stride(0, 0, 30), 1)
    met.join(stride(0, 0, 10), 2)
    assert met.awaited == (1, 20)


def test_ranks_meet_in_the_same_step() -> None:
    ranks = Ranks(0, 0)
    ranks.does(0, range(3), 0)
    ranks.does(1, range(2), 5)
    assert ranks.settle() == {(0, 0): 2, (0, 1): 2, (0, 2): 1}
    assert ranks.passed == (0, 1)
    assert sorted(at for at in ranks.muster.meetings if at <= (0, 1)) == [(0, 0), (0, 1)]


def test_a_rank_that_has_not_begun_is_waited_for_until_it_ends() -> None:
    ranks = Ranks(0, 0)
    ranks.does(0, range(3), 0)
    assert ranks.passed is None
    ranks.ends(1)
    assert ranks.passed == (0, 2)
    ranks.ends(0)
    assert ranks.passed == (0, BEYOND)


# ── back ───────────────────────────────────────────────────────────────────────────────────────


def test_when_all_go_back_a_generation_begins() -> None:
    ranks = Ranks(0, 0)
    for rank in (0, 1):
        ranks.does(rank, range(4), 0)
    ranks.does(0, (2, 3), 50, lap=1)
    assert ranks.settle() == {(0, step): 2 for step in range(4)}  # one alone has not gone back
    assert ranks.muster.is_apart(ranks.tracks)
    ranks.does(1, (2, 3), 50, lap=1)
    assert ranks.settle() == {(0, step): 2 for step in range(4)} | {(1, 2): 2, (1, 3): 2}
    assert (ranks.passed, ranks.muster.is_apart(ranks.tracks)) == ((1, 3), False)


def test_a_rank_that_goes_back_alone_catches_up() -> None:
    """What it did again meanwhile is nobody's but its own."""
    ranks = Ranks(0, 0)
    for rank in (0, 1):
        ranks.does(rank, range(4), 0)
    ranks.does(1, range(2, 6), 60, lap=1)  # 4 and 5 from 80 to 100
    ranks.does(0, (4, 5), 80)
    assert ranks.settle() == {(0, step): 2 for step in range(6)}
    assert (ranks.muster.generation, ranks.passed) == (0, (0, 5))


def test_those_that_are_gone_need_not_go_back() -> None:
    ranks = Ranks(0, 0)
    for rank in (0, 1):
        ranks.does(rank, range(4), 0)
    ranks.ends(1)
    ranks.does(0, (2, 3), 50, lap=1)
    assert ranks.settle()[1, 2] == 1
    assert ranks.muster.generation == 1


# ── newcomers ──────────────────────────────────────────────────────────────────────────────────


def test_a_newcomer_that_does_what_the_others_do_meets_them() -> None:
    ranks = Ranks(0)
    ranks.does(0, range(4), 0)
    late = ranks.join(25)
    ranks.does(late, (3,), 30)
    assert ranks.settle() == {(0, 0): 1, (0, 1): 1, (0, 2): 1, (0, 3): 2}


def test_a_newcomer_behind_the_others_is_apart_until_it_has_caught_up() -> None:
    ranks = Ranks(0)
    ranks.does(0, range(4), 0)
    late = ranks.join(35)
    ranks.does(late, (0, 1), 40)
    assert ranks.settle() == {(0, step): 1 for step in range(4)}
    assert ranks.muster.is_apart(ranks.tracks)
    ranks.does(0, (4,), 60)
    ranks.does(late, (4,), 60)
    assert ranks.settle()[0, 4] == 2
    assert not ranks.muster.is_apart(ranks.tracks)


def test_what_is_booked_is_behind_a_newcomer_too() -> None:
    ranks = Ranks(0)
    ranks.does(0, range(4), 0)
    ranks.muster.meetings.clear()
    late = ranks.join(35)
    ranks.does(late, (3,), 40, reached=(0, 3))
    assert ranks.settle() == {}
    assert ranks.muster.is_apart(ranks.tracks)


def test_a_newcomer_counts_into_the_generation_that_the_others_begin() -> None:
    """A rank is replaced, and the others go back with the one that comes."""
    ranks = Ranks(0, 0)
    for rank in (0, 1):
        ranks.does(rank, range(4), 0)
    ranks.ends(1)
    new = ranks.join(50)
    ranks.does(new, (2, 3), 60)
    ranks.does(0, (2, 3), 60, lap=1)
    assert ranks.settle() == {(0, step): 2 for step in range(4)} | {(1, 2): 2, (1, 3): 2}
    assert ranks.passed == (1, 3)


# ── copied and saved ───────────────────────────────────────────────────────────────────────────


def test_a_copy_goes_its_own_way_and_what_is_saved_comes_back() -> None:
    ranks = Ranks(0, 0)
    for rank in (0, 1):
        ranks.does(rank, range(4), 0)
    ranks.does(0, (2, 3), 50, lap=1)
    muster = ranks.muster
    before, copy = str(muster.state()), muster.copy()
    assert Muster.of_state(muster.state()) == muster == copy
    copy.take(ranks.tracks["rank 1"], stride(2, 50, 60, lap=1), None)
    copy.settle(ranks.tracks)
    assert copy.generation == 1
    assert str(muster.state()) == before
