"""Several ranks: a step of the run is as long as its slowest rank makes it."""

from __future__ import annotations

import json

import pytest

from runwatch.views.goodput.ledger import HELD_STEPS, Ledger, Stale
from runwatch.views.goodput.steps.judging import Pace
from runwatch.views.goodput.steps.track import LATE_STEPS, Track
from tests.unit.views.goodput.story import (
    SECOND,
    Notebook,
    goodput_of,
    last_ns,
    rows,
    scribe_for,
    spent,
    told,
)


def lockstep(count: int, ranks: int, length: int = 10, start: int = 0) -> list[Notebook]:
    """Ranks that do the same steps at the same times."""
    edges = range(start, start + (count + 1) * length, length)
    return [Notebook(rank, start=start).steps(0, *edges) for rank in range(ranks)]


# ── who is the slowest ─────────────────────────────────────────────────────────────────────────


def test_a_step_begins_with_the_last_rank_and_its_gap_is_what_that_rank_did() -> None:
    quick = Notebook(0).steps(0, 0, 10).span("evaluation", 10, 12).steps(1, 12, 30)
    slow = Notebook(1).steps(0, 0, 10).span("data_loading", 10, 20).steps(1, 20, 30)
    goodput = told(quick.exits(30), slow.exits(30))
    assert rows(goodput) == [
        (0, 10, "productive"),
        (10, 20, "data_loading"),
        (20, 30, "productive"),
    ]
    assert [(share.rank, share.awaited_steps, share.awaited_ns) for share in goodput.ranks] == [
        (0, 0, 0), (1, 1, 8 * SECOND),
    ]  # fmt: skip


def test_a_step_ends_with_the_last_rank_and_inside_it_is_what_that_rank_did() -> None:
    quick = Notebook(0).steps(0, 0, 10).step(1, 10, 20)
    slow = Notebook(1).steps(0, 0, 10)
    span = slow.begin("step", 10, 1)
    slow.span("checkpoint_save", 20, 28).end("step", span, 30, 1)
    goodput = told(quick.exits(30), slow.exits(30))
    assert rows(goodput) == [
        (0, 20, "productive"), (20, 28, "checkpoint_save"), (28, 30, "productive"),
    ]  # fmt: skip


def test_what_only_a_rank_that_is_waited_for_by_nobody_did_does_not_count() -> None:
    idle = Notebook(0).steps(0, 0, 10).span("data_loading", 11, 15).steps(1, 15, 30)
    busy = Notebook(1).steps(0, 0, 14).steps(1, 16, 30)
    goodput = told(idle.exits(30), busy.exits(30))
    assert rows(goodput) == [
        (0, 14, "productive"),
        (14, 16, "unattributed"),
        (16, 30, "productive"),
    ]


def test_a_tie_goes_to_the_lower_rank_whoever_is_heard_first() -> None:
    zero = Notebook(0).steps(0, 0, 10).span("profiling", 10, 20).steps(1, 20, 30)
    one = Notebook(1).steps(0, 0, 10).span("upload", 10, 20).steps(1, 20, 30)
    found = [rows(told(*order)) for order in ((zero, one), (one, zero))]
    assert found[0] == found[1] == [
        (0, 10, "productive"), (10, 20, "custom:profiling"), (20, 30, "productive"),
    ]  # fmt: skip


def test_a_late_rank_delays_the_first_step() -> None:
    early = Notebook(0).span("accelerator_init", 0, 5).step(0, 5, 20).step(1, 20, 30)
    late = Notebook(1, start=8).span("accelerator_init", 8, 11).step(0, 12, 20).step(1, 20, 30)
    goodput = told(early.exits(30), late.exits(30))
    assert rows(goodput) == [
        (0, 8, "training_preparation"),
        (8, 11, "accelerator_init"),
        (11, 12, "training_preparation"),
        (12, 30, "productive"),
    ]


def test_a_rank_that_never_steps_holds_nobody_up() -> None:
    books = lockstep(100, 2)
    books.append(Notebook(2).span("evaluation", 3, 9))
    goodput = told(*books)
    assert rows(goodput) == [(0, 1000, "productive")]
    assert [share.steps for share in goodput.ranks] == [100, 100, 0]
    assert goodput.ranks[2].mean_step_ns is None


def test_a_rank_that_does_other_steps_counts_where_it_meets_the_others() -> None:
    every = Notebook(0).steps(0, *range(0, 70, 10))
    third = Notebook(1).step(0, 0, 10).step(3, 30, 44)
    goodput = told(every.exits(60), third.exits(60))
    assert goodput.steps == 6
    assert rows(goodput) == [(0, 60, "productive")]


def test_the_mean_step_of_a_rank_is_its_own_without_what_spans_claim() -> None:
    span = (book := Notebook(0)).begin("step", 0, 0)
    book.span("checkpoint_save", 2, 6).end("step", span, 10, 0)
    goodput = told(book, Notebook(1).step(0, 0, 8))
    assert [share.mean_step_ns for share in goodput.ranks] == [6 * SECOND, 8 * SECOND]


# ── ranks that die ─────────────────────────────────────────────────────────────────────────────


def test_a_rank_dies_and_the_others_hang() -> None:
    quick = Notebook(0).steps(0, 0, 10, 20, 30, 40).step(4, 40)
    dead = Notebook(1).steps(0, 0, 10, 20, 30, 40).step(4, 40).killed(45)
    goodput = told(quick, dead, now=500)
    assert rows(goodput) == [
        (0, 40, "productive"), (40, 45, "wasted_progress"), (45, 500, "infrastructure_recovery"),
    ]  # fmt: skip
    (disruption,) = goodput.disruptions
    assert (disruption.time_ns, disruption.lost_steps) == (45 * SECOND, 0)
    assert "rank 1" in disruption.cause
    assert goodput.live


def test_a_rank_that_leaves_its_step_by_an_exception_has_not_done_it() -> None:
    """Its step has an end, but the others are still in it."""
    fails = Notebook(1).steps(0, 0, 10, 20, 30).step(3, 30, 35).exits(37, "failed", "ValueError")
    hangs = Notebook(0).steps(0, 0, 10, 20, 30).step(3, 30).killed(60)
    goodput = told(fails, hangs)
    assert rows(goodput) == [
        (0, 30, "productive"), (30, 37, "wasted_progress"), (37, 60, "infrastructure_recovery"),
    ]  # fmt: skip
    assert goodput.steps == 3


def test_a_step_is_done_once_a_rank_is_in_the_next() -> None:
    ahead = Notebook(0).steps(0, 0, 10, 20, 30).step(3, 30)
    behind = Notebook(1).steps(0, 0, 10, 20).step(2, 20)
    goodput = told(ahead, behind, now=35)
    assert rows(goodput) == [(0, 35, "productive")]
    assert goodput.steps == 3


def test_a_rank_dies_and_the_others_go_on() -> None:
    others = Notebook(0).steps(0, *range(0, 110, 10))
    dead = Notebook(1).steps(0, 0, 10, 20, 30).step(3, 30).killed(35)
    goodput = told(others, dead, now=100)
    assert rows(goodput) == [(0, 100, "productive")]
    assert goodput.disruptions == []


def test_an_open_step_after_a_death_has_the_benefit_of_the_doubt_until_it_is_a_stall() -> None:
    others = Notebook(0).steps(0, 0, 10, 20, 30, 40).step(4, 40)
    dead = Notebook(1).steps(0, 0, 10, 20, 30).step(3, 30).killed(35)
    assert rows(told(others, dead, now=90)) == [(0, 90, "productive")]
    assert rows(told(others, dead, now=91)) == [
        (0, 40, "productive"), (40, 91, "infrastructure_recovery"),
    ]  # fmt: skip


def test_of_several_that_die_the_first_is_the_cause() -> None:
    books = lockstep(3, 4)
    for book, at in zip(books, (40, 33, 36, 60), strict=True):
        book.killed(at)
    (disruption,) = told(*books).disruptions
    assert "rank 1" in disruption.cause
    assert disruption.time_ns == 33 * SECOND


def test_of_those_found_dead_at_once_the_one_that_may_have_died_first_is_the_cause() -> None:
    books = lockstep(3, 2)
    for book, lived in zip(books, (34, 32), strict=True):
        book.killed(35)
        book.lived_ns = lived * SECOND
    (disruption,) = told(*books).disruptions
    assert "rank 1" in disruption.cause
    assert disruption.time_ns == 35 * SECOND


def test_a_dead_ranks_last_step_is_met_and_not_done_anew() -> None:
    """Although nobody waits for it, and it was told before the others were known."""
    dead = Notebook(0).step(0, 1, 2).killed(3)
    other = Notebook(1).step(0, 1, 2).step(1, 3, 4).killed(5)
    scribe = scribe_for([dead])
    scribe.batch(dead.batch())
    goodput_of(scribe, [dead, other], 5 * SECOND)
    scribe.enter(other.journal, 1, 1, 0)
    scribe.batch(other.batch())
    scribe.ledger.settle()
    goodput = goodput_of(scribe, [dead, other], 5 * SECOND)
    assert goodput is not None
    assert (goodput.steps, goodput.attempts[0].steps) == (2, 2)
    assert rows(goodput) == rows(told(dead, other))


# ── late news ──────────────────────────────────────────────────────────────────────────────────


def test_a_rank_that_joins_after_steps_were_booked_is_too_late() -> None:
    ledger = Ledger()
    track = ledger.track("a", attempt=(1, 0), rank=0, start_ns=0)
    _do(track, range(LATE_STEPS))
    ledger.track("c", attempt=(1, 0), rank=2, start_ns=0)  # none was booked yet
    ledger.forget((1, 0), "c")
    _do(track, range(LATE_STEPS, LATE_STEPS + 1))
    with pytest.raises(Stale, match="rank 1 joined"):
        ledger.track("b", attempt=(1, 0), rank=1, start_ns=0)
    assert ledger.track("a", attempt=(1, 0), rank=0, start_ns=0) is track


def test_a_rank_that_tells_of_a_booked_step_is_too_late() -> None:
    ledger = Ledger()
    a, b = (ledger.track(key, attempt=(1, 0), rank=r, start_ns=0) for r, key in enumerate("ab"))
    _do(a, range(5 + LATE_STEPS))
    _do(b, range(1))
    b.flush()
    ledger.end(["b"])
    ledger.settle()
    assert ledger.attempts[1, 0].booked == (0, 4)
    with pytest.raises(Stale, match="told of step 1 after it was booked"):
        _do(b, range(1, 2 + LATE_STEPS))


def test_a_lenient_ledger_lets_it_have_no_say() -> None:
    ledger = Ledger(lenient=True)
    steps = LATE_STEPS + 2
    _do(ledger.track("a", attempt=(1, 0), rank=0, start_ns=0), range(steps))
    _do(ledger.track("b", attempt=(1, 0), rank=1, start_ns=0), range(steps), length=99)
    ledger.settle()
    (attempt,) = ledger.attempts.values()
    assert attempt.booked == (0, 1)
    laps = attempt.tail(Pace()).books.laps
    assert [lap.begins.tolist() for lap in laps] == [
        [0, 10, *(99 * step for step in range(2, steps))]  # those that nobody had booked
    ]
    assert attempt.tail(Pace()).books.end_ns == steps * 99


def test_steps_are_held_back_while_a_rank_may_still_begin() -> None:
    ledger = Ledger()
    a, b = (ledger.track(key, attempt=(1, 0), rank=r, start_ns=0) for r, key in enumerate("ab"))
    _do(a, range(HELD_STEPS + 20))
    ledger.settle()
    (attempt,) = ledger.attempts.values()
    assert len(attempt.muster.meetings) == HELD_STEPS
    _do(b, range(HELD_STEPS // 2, HELD_STEPS + 20))
    ledger.settle()
    # Of the last few something may still be said.
    assert attempt.booked == (0, HELD_STEPS + 19 - LATE_STEPS)


def test_an_announced_process_is_waited_for_before_it_records() -> None:
    books = [Notebook(0).begins(0, *range(0, 400, 10)), Notebook(1).begins(0, *range(5, 405, 10))]
    scribe = scribe_for(books)
    for book in books:  # entire journals, one after the other
        scribe.batch(book.batch())
        scribe.ledger.settle()
    goodput = goodput_of(scribe, books, last_ns(books))
    assert goodput is not None
    assert [share.steps for share in goodput.ranks] == [39, 39]


def test_a_process_is_expected_in_its_own_attempt_only() -> None:
    ledger = Ledger()
    ledger.announce(1, "a")
    ledger.track("a", attempt=(1, 0), rank=0, start_ns=0)
    ledger.announce(2, "b")
    ledger.announce(2, "c")
    ledger.announce(1, "a")
    assert ledger.attempts[1, 0].expected == 1
    ledger.announce(1, "d")
    assert ledger.attempts[1, 0].expected == 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_batches_of_nothing_but_steps_are_booked_as_any_others(ranks: int) -> None:
    books = [
        Notebook(rank).entry("job_start_time", 0).begins(0, *range(5 + rank, 4005, 10))
        for rank in range(ranks)
    ]
    scribe = scribe_for(books)
    for first, last in ((0, 60), (60, 150), (150, 151), (151, 401)):
        for book in books:
            scribe.batch(book.batch(first, last))
            scribe.ledger.settle()
    goodput = goodput_of(scribe, books, last_ns(books))
    assert goodput is not None
    assert rows(goodput) == [
        (0, 4 + ranks, "training_preparation"),
        (4 + ranks, 3994 + ranks, "productive"),
    ]
    assert [share.steps for share in goodput.ranks] == [399] * ranks
    assert [share.awaited_steps for share in goodput.ranks] == ([0] if ranks == 1 else [0, 399])


def test_a_process_that_tells_its_own_story_is_forgotten_with_its_attempt() -> None:
    ledger = Ledger()
    ledger.track("a", attempt=(1, 0), rank=0, start_ns=0)
    ledger.forget((1, 0), "b")
    ledger.forget((2, 0), "a")
    assert list(ledger.attempts) == [(1, 0)]
    ledger.forget((1, 0), "a")
    assert ledger.attempts == {}


def test_an_earlier_start_moves_the_attempts() -> None:
    ledger = Ledger()
    ledger.track("a", attempt=(1, 0), rank=0, start_ns=50)
    ledger.track("b", attempt=(1, 0), rank=1, start_ns=20)
    ledger.track("c", attempt=(1, 0), rank=2, start_ns=30)
    assert ledger.attempts[1, 0].start_ns == 20


# ── saved ──────────────────────────────────────────────────────────────────────────────────────


def test_a_saved_ledger_is_json_and_comes_back_whole() -> None:
    books = [
        *lockstep(30, 2),
        Notebook(0, 2, 400).span("upload", 400, 404).steps(25, 410, 420, 430),
    ]
    scribe = scribe_for(books)
    for book in books:
        scribe.batch(book.batch())
    saved = scribe.ledger.save()
    assert isinstance(json.loads(saved), dict)
    again = Ledger.load(saved)
    assert again.save() == saved
    assert again.attempts.keys() == scribe.ledger.attempts.keys()
    assert again.names.custom == ("upload",)


@pytest.mark.parametrize("saved", [b"{}", b"[]", b'{"version": 0}', b"null", b"nonsense"])
def test_what_is_not_a_state_is_refused(saved: bytes) -> None:
    with pytest.raises(ValueError):
        Ledger.load(saved)


def test_seconds_of_two_ranks_are_counted_once() -> None:
    goodput = told(*lockstep(50, 4))
    assert spent(goodput) == {"productive": 500}
    assert (goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns) == (
        50,
        49,
        10 * SECOND,
    )


def _do(track: Track, steps: range, length: int = 10) -> None:
    for step in steps:
        track.begin(step * length, step)
        track.end((step + 1) * length)
