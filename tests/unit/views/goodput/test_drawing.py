"""Attempts on one time axis: how they end, what is lost, what lies between them."""

from __future__ import annotations

import pytest

from runwatch.views.goodput.account import (
    mean_time_between_failures_ns,
    mean_time_to_recovery_ns,
)
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.ledger import Ledger
from runwatch.views.life import State
from tests.unit.views.goodput.story import SECOND, Notebook, rows, spent, told


def first_try(*, last: int = 9, length: int = 10) -> Notebook:
    """Steps 0 to `last`, back to back from 0."""
    return Notebook().steps(0, *range(0, (last + 2) * length, length))


# ── how an attempt ends ────────────────────────────────────────────────────────────────────────


def test_nothing_has_begun() -> None:
    assert draw_up(Ledger(), [], 100) is None


def test_a_run_that_goes_on_is_accounted_for_until_now() -> None:
    goodput = told(Notebook().steps(0, 0, 10, 20).step(2, 20), now=25)
    assert rows(goodput) == [(0, 25, "productive")]
    assert goodput.live
    assert (goodput.steps, goodput.attempts[0].stop_ns) == (2, 25 * SECOND)


def test_a_run_that_ended_well_is_accounted_for_until_its_end() -> None:
    goodput = told(Notebook().steps(0, 0, 10, 20).exits(23), now=1000)
    assert rows(goodput) == [(0, 20, "productive"), (20, 23, "unattributed")]
    assert not goodput.live
    assert goodput.disruptions == []


def test_a_run_without_steps_is_unattributed_but_for_its_spans() -> None:
    goodput = told(Notebook().span("evaluation", 5, 15).exits(20))
    assert rows(goodput) == [
        (0, 5, "unattributed"),
        (5, 15, "evaluation"),
        (15, 20, "unattributed"),
    ]
    assert (goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns) == (0, None, None)


def test_before_the_first_step_is_preparation_also_while_it_lasts() -> None:
    goodput = told(Notebook().span("accelerator_init", 2, 6).step(0, 10), now=10)
    assert rows(goodput) == [
        (0, 2, "training_preparation"), (2, 6, "accelerator_init"), (6, 10, "training_preparation"),
    ]  # fmt: skip
    assert goodput.inferred_ns == 6 * SECOND


def test_a_zero_length_run_has_no_time_and_no_goodput() -> None:
    goodput = told(Notebook(start=5).exits(5))
    account = goodput.account()
    assert (account.total_ns, account.goodput, rows(goodput)) == (0, None, [])
    assert set(account.spent_ns.values()) == {0}


@pytest.mark.parametrize("state", ["killed", "failed"])
def test_a_crash_cuts_a_step_short_and_is_recovered_from(state: State) -> None:
    first = Notebook().steps(0, 0, 10, 20, 30).step(3, 30).exits(34, state, "for a reason")
    second = Notebook(attempt=2, start=100).steps(3, 110, 120, 130).exits(130)
    goodput = told(first, second)
    assert rows(goodput) == [
        (0, 30, "productive"),
        (30, 34, "wasted_progress"),
        (34, 100, "infrastructure_recovery"),
        (100, 110, "training_preparation"),
        (110, 130, "productive"),
    ]
    (disruption,) = goodput.disruptions
    assert (disruption.attempt, disruption.time_ns, disruption.lost_steps) == (1, 34 * SECOND, 0)
    assert (disruption.wasted_ns, disruption.hung) == (4 * SECOND, False)
    assert (disruption.recovery_ns, disruption.back_ns) == (66 * SECOND, 76 * SECOND)
    assert "for a reason" in disruption.cause


def test_a_second_job_of_the_name_does_not_disrupt_the_first() -> None:
    """Both do steps at once: from its start on the account is the second's."""
    first = Notebook().steps(0, *range(0, 110, 10)).exits(100)
    second = Notebook(attempt=2, start=40).steps(0, *range(50, 160, 10)).exits(150)
    goodput = told(first, second)
    assert rows(goodput) == [
        (0, 40, "productive"), (40, 50, "training_preparation"), (50, 150, "productive"),
    ]  # fmt: skip
    assert goodput.disruptions == []
    assert goodput.account().total_ns == 150 * SECOND


def test_a_rank_that_lingers_does_not_make_a_restart_a_second_job() -> None:
    lingers = Notebook(1).steps(0, *range(0, 40, 10)).exits(100, "killed", "at last")
    died = Notebook(0).steps(0, *range(0, 40, 10)).exits(35, "killed", "first")
    again = [Notebook(r, attempt=2, start=40).steps(3, 50, 60, 70).exits(70) for r in (0, 1)]
    goodput = told(lingers, died, *again)
    assert [disruption.attempt for disruption in goodput.disruptions] == [1]


def test_two_that_go_down_at_one_instant() -> None:
    """A rank may be there twice: whoever starts programs may be wrong."""
    one, other = (Notebook(0, name=name).steps(0, 0, 10, 20) for name in "ab")
    lingers = Notebook(1).steps(0, 0, 10, 20)
    goodput = told(one.exits(25, "failed", "x"), other.exits(25, "failed", "y"), lingers, now=300)
    (disruption,) = goodput.disruptions
    assert disruption.time_ns == 25 * SECOND


def test_a_crash_that_nothing_follows_yet() -> None:
    goodput = told(first_try(last=3).killed(45), now=300)
    (disruption,) = goodput.disruptions
    assert (disruption.recovery_ns, disruption.back_ns) == (None, None)
    assert (goodput.end_ns, goodput.live) == (45 * SECOND, False)


def test_recovery_lasts_until_the_next_attempt_also_where_ranks_linger() -> None:
    dead = Notebook(0).steps(0, 0, 10, 20).killed(20)
    lingers = Notebook(1).steps(0, 0, 10, 20).killed(60)
    again = [Notebook(rank, 2, 90).steps(2, 90, 100).exits(100) for rank in (0, 1)]
    goodput = told(dead, lingers, *again)
    assert spent(goodput) == {"productive": 30, "infrastructure_recovery": 70}


def test_an_attempt_whose_end_nobody_saw_was_heard_of_last_when_it_was() -> None:
    first = Notebook().steps(0, 0, 10, 20).step(2, 20)
    second = Notebook(attempt=2, start=100).steps(2, 110, 120).exits(120)
    goodput = told(first, second)
    assert spent(goodput)["infrastructure_recovery"] == 80
    assert goodput.disruptions[0].cause == "started again; its end was not seen"
    assert goodput.inferred_ns == (80 + 10) * SECOND


def test_what_was_heard_of_last_need_not_be_a_step() -> None:
    first = Notebook().steps(0, 0, 10, 20).span("evaluation", 22, 30)
    second = Notebook(attempt=2, start=100).steps(2, 100, 110).exits(110)
    assert rows(told(first, second)) == [
        (0, 20, "productive"),
        (20, 22, "unattributed"),
        (22, 30, "evaluation"),
        (30, 100, "infrastructure_recovery"),
        (100, 110, "productive"),
    ]


def test_a_process_that_fell_silent_may_have_gone_on_and_that_is_said() -> None:
    first = Notebook().steps(0, 0, 10, 20).exits(20, "lost", "silent")
    second = Notebook(attempt=2, start=50).steps(2, 50, 60).exits(60)
    goodput = told(first, second)
    assert spent(goodput) == {"productive": 30, "infrastructure_recovery": 30}
    assert goodput.inferred_ns == 30 * SECOND


def test_an_attempt_that_ended_well_and_was_started_again() -> None:
    """Exit code 0 is no word that all was done."""
    first = first_try(last=1).exits(20)
    first.said_done = False
    goodput = told(first, Notebook(attempt=2, start=70).steps(2, 70, 80).exits(80))
    assert rows(goodput) == [
        (0, 20, "productive"), (20, 70, "infrastructure_recovery"), (70, 80, "productive"),
    ]  # fmt: skip
    assert goodput.disruptions[0].cause == "ended and was started again"
    assert goodput.inferred_ns == 0


@pytest.mark.parametrize(
    "said, goes_on_at, complete",
    [
        (True, 0, True),
        (True, 2, True),  # it said so: what comes after is another go
        (None, 0, True),  # nobody knows, and it begins where that one began
        (None, 2, False),
        (False, 0, False),
        (False, 2, False),
    ],
)
def test_an_attempt_was_complete_if_it_said_so_or_may_have_been_and_all_begins_again(
    said: bool | None, goes_on_at: int, complete: bool
) -> None:
    first = first_try(last=1).exits(20)
    first.said_done = said
    goodput = told(first, Notebook(attempt=2, start=70).steps(goes_on_at, 70, 80).exits(80))
    name = "excluded" if complete else "infrastructure_recovery"
    assert rows(goodput, 20, 70) == [(20, 70, name)]
    assert len(goodput.disruptions) == (not complete)
    work = "productive" if complete or goes_on_at else "wasted_progress"
    assert rows(goodput, 0, 20) == [(0, 20, work)]


def test_that_it_was_not_complete_is_doubtful_where_all_begins_again() -> None:
    first = first_try(last=1).exits(20)
    first.said_done = False
    goodput = told(first, Notebook(attempt=2, start=70).steps(0, 70, 80).exits(80))
    assert goodput.inferred_ns == 70 * SECOND
    assert goodput.disruptions[0].cause == (
        "ended without saying that it was done, and was started again at step 0"
    )


def test_a_complete_attempt_stands_where_the_run_begins_again() -> None:
    """It was run twice: neither is the other's waste, and nobody waited in between."""
    first = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20).entry("job_end_time", 30)
    second = Notebook(attempt=2, start=500).entry("job_start_time", 500).begins(0, 510, 520)
    goodput = told(first.exits(30), second.entry("job_end_time", 530).exits(530))
    assert rows(goodput) == [
        (0, 30, "productive"),
        (30, 500, "excluded"),
        (500, 510, "training_preparation"),
        (510, 530, "productive"),
    ]
    assert (goodput.disruptions, goodput.steps) == ([], 5)
    assert goodput.account().goodput == 50 / 60


def test_what_is_redone_in_a_second_go_is_redone_of_that_go() -> None:
    first = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20).entry("job_end_time", 30)
    second = Notebook(attempt=2, start=100).steps(0, 100, 110, 120, 130).killed(130)
    third = Notebook(attempt=3, start=200).steps(1, 200, 210).exits(210)
    goodput = told(first.exits(30), second, third)
    assert spent(goodput) == {
        "productive": 30 + 10 + 10, "excluded": 70, "wasted_progress": 20,
        "infrastructure_recovery": 70,
    }  # fmt: skip
    assert [d.lost_steps for d in goodput.disruptions] == [2]


def test_attempts_that_overlap_are_cut_where_the_next_begins() -> None:
    first = Notebook().steps(0, *range(0, 110, 10)).killed(100)
    second = Notebook(attempt=2, start=45).steps(4, 50, 60, 70).exits(100)
    goodput = told(first, second)
    assert spent(goodput)["training_preparation"] == 5
    assert goodput.end_ns - goodput.start_ns == 100 * SECOND


# ── who tells of what is going on ──────────────────────────────────────────────────────────────


def test_an_open_step_began_with_the_last_rank_whoever_was_heard_of_last() -> None:
    early = Notebook(0).steps(0, 0, 10, 20, 30, 40).step(4, 41)
    early.span("checkpoint_save", 55, 58).killed(70)
    late = Notebook(1).steps(0, 0, 10, 20, 30, 40).span("data_loading", 40, 50).step(4, 50)
    assert rows(told(early, late.killed(60)), 40) == [
        (40, 50, "data_loading"), (50, 60, "wasted_progress"), (60, 70, "infrastructure_recovery"),
    ]  # fmt: skip


def test_before_the_first_step_is_done_everyone_is_waited_for() -> None:
    early = Notebook(0).span("accelerator_init", 0, 5).step(0, 6).killed(70)
    late = Notebook(1).span("accelerator_init", 0, 50).killed(60)
    again = [Notebook(rank, 2, 100).steps(0, 100, 110, 120).exits(120) for rank in (0, 1)]
    assert rows(told(early, late, *again), 0, 100) == [
        (0, 50, "accelerator_init"), (50, 60, "training_preparation"),
        (60, 100, "infrastructure_recovery"),
    ]  # fmt: skip


def test_a_rank_whose_end_nobody_saw_may_have_died_at_its_last_sign_of_life() -> None:
    seen = Notebook(0).steps(0, 0, 10, 20, 30, 40).step(4, 40).killed(60)
    unseen = Notebook(1).steps(0, 0, 10, 20, 30, 40).step(4, 40)
    again = [Notebook(rank, 2, 200).steps(4, 200, 210).exits(210) for rank in (0, 1)]
    goodput = told(seen, unseen, *again)
    assert spent(goodput)["infrastructure_recovery"] == 140
    assert goodput.inferred_ns == 20 * SECOND


def test_a_span_of_the_users_own_that_never_ended_is_inferred_where_it_enclosed() -> None:
    book = Notebook().steps(0, 0, 10).span("upload", 10).steps(1, 12, 22).step(2, 25, 35)
    goodput = told(book.exits(40))
    assert spent(goodput) == {"productive": 30, "custom:upload": 2 + 3 + 5}
    assert goodput.inferred_ns >= 8 * SECOND


def test_a_named_span_without_an_end_is_inferred_to_where_the_program_ended() -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20).entries("data_loading", 22)
    goodput = told(book.entry("job_end_time", 40))
    assert spent(goodput)["data_loading"] == 18
    assert goodput.inferred_ns >= 18 * SECOND


# ── hangs ──────────────────────────────────────────────────────────────────────────────────────


def test_an_open_step_that_takes_too_long_is_a_stall_as_of_now() -> None:
    book = Notebook().steps(0, 0, 10, 20, 30).step(3, 30)
    assert rows(told(book, now=80)) == [(0, 80, "productive")]
    assert rows(told(book, now=81)) == [(0, 40, "productive"), (40, 81, "stall")]
    assert told(book, now=81).inferred_ns == 51 * SECOND


def test_short_steps_do_not_stall_within_ten_seconds() -> None:
    book = Notebook().steps(0, 0, 1, 2, 3).step(3, 3)
    assert rows(told(book, now=13)) == [(0, 13, "productive")]
    assert rows(told(book, now=14)) == [(0, 4, "productive"), (4, 14, "stall")]


def test_after_the_last_step_nothing_goes_on_and_that_is_a_stall_while_it_runs() -> None:
    book = Notebook().steps(0, 0, 10, 20, 30)
    assert rows(told(book, now=80)) == [(0, 30, "productive"), (30, 80, "unattributed")]
    assert rows(told(book, now=81)) == [(0, 30, "productive"), (30, 81, "stall")]
    assert rows(told(book.exits(90))) == [(0, 30, "productive"), (30, 90, "unattributed")]


def test_a_first_step_that_was_never_done_was_starting() -> None:
    goodput = told(Notebook().step(0, 0).killed(70))
    assert rows(goodput) == [(0, 70, "program_startup")]
    assert (goodput.inferred_ns, goodput.disruptions[0].hung) == (70 * SECOND, False)


def test_a_first_step_that_was_never_done_hung_after_a_quarter_of_an_hour() -> None:
    assert rows(told(Notebook().step(0, 0).killed(900))) == [(0, 900, "program_startup")]
    goodput = told(Notebook().step(0, 0).killed(901))
    assert rows(goodput) == [(0, 901, "stall")]
    assert goodput.disruptions[0].hung


def test_a_hang_that_ends_in_a_kill() -> None:
    first = Notebook().steps(0, 0, 10, 20, 30).step(3, 30).killed(400)
    second = Notebook(attempt=2, start=500).steps(3, 500, 510).exits(510)
    goodput = told(first, second)
    assert rows(goodput) == [
        (0, 30, "productive"),
        (30, 40, "wasted_progress"),
        (40, 400, "stall"),
        (400, 500, "infrastructure_recovery"),
        (500, 510, "productive"),
    ]
    assert goodput.disruptions[0].hung


def test_an_open_first_step_is_starting_as_it_will_be_once_it_is_done() -> None:
    first = Notebook().steps(0, 0, 10, 20, 30).killed(30)
    second = Notebook(attempt=2, start=40).step(3, 40)
    goodput = told(first, second, now=200)
    assert rows(goodput, 40) == [(40, 190, "program_startup"), (190, 200, "productive")]
    assert goodput.inferred_ns == 160 * SECOND
    assert not goodput.disruptions[0].hung


def test_an_open_first_step_that_has_compiled_may_hang() -> None:
    first = Notebook().steps(0, 0, 10, 20, 30).killed(30)
    second = Notebook(attempt=2, start=40).step(3, 40).elapsed("compile", 20, 65)
    assert rows(told(first, second, now=200), 40) == [
        (40, 45, "productive"), (45, 65, "program_startup"), (65, 70, "productive"),
        (70, 200, "stall"),
    ]  # fmt: skip


def test_a_span_that_is_open_is_no_stall() -> None:
    book = Notebook().steps(0, 0, 10, 20, 30).step(3, 30)
    book.begin("checkpoint_save", 35)
    assert rows(told(book, now=400)) == [(0, 35, "productive"), (35, 400, "checkpoint_save")]


# ── work done again ────────────────────────────────────────────────────────────────────────────


def test_work_done_again_is_wasted_where_it_was_first_done() -> None:
    goodput = told(first_try().killed(100), Notebook(attempt=2, start=150).steps(6, 150, 160, 170))
    assert rows(goodput) == [
        (0, 60, "productive"),
        (60, 100, "wasted_progress"),
        (100, 150, "infrastructure_recovery"),
        (150, 170, "productive"),
    ]
    (disruption,) = goodput.disruptions
    assert (disruption.lost_steps, disruption.wasted_ns) == (4, 40 * SECOND)
    assert (goodput.steps, goodput.max_productive_step) == (8, 7)


def test_only_what_was_productive_is_wasted() -> None:
    first = Notebook().steps(0, 0, 10, 20).span("checkpoint_save", 20, 25).steps(2, 25, 35, 45)
    goodput = told(first.killed(45), Notebook(attempt=2, start=45).steps(2, 45, 55).exits(55))
    assert rows(goodput) == [
        (0, 20, "productive"),
        (20, 25, "checkpoint_save"),
        (25, 45, "wasted_progress"),
        (45, 55, "productive"),
    ]


def test_going_back_further_wastes_more_and_never_twice() -> None:
    second = Notebook(attempt=2, start=100).steps(6, 100, 110, 120, 130).killed(130)
    third = Notebook(attempt=3, start=130).steps(4, 130, 140, 150).exits(150)
    goodput = told(first_try().killed(100), second, third)
    assert rows(goodput) == [
        (0, 40, "productive"),
        (40, 130, "wasted_progress"),
        (130, 150, "productive"),
    ]
    assert [d.lost_steps for d in goodput.disruptions] == [4, 5]
    assert goodput.steps == 6


def test_going_back_in_place_is_no_disruption() -> None:
    book = Notebook().steps(0, 0, 10, 20, 30, 40).steps(2, 40, 50, 60, 70).exits(70)
    goodput = told(book)
    assert rows(goodput) == [
        (0, 20, "productive"),
        (20, 40, "wasted_progress"),
        (40, 70, "productive"),
    ]
    assert goodput.disruptions == []


def test_going_back_in_place_after_a_disruption_is_not_its_cost() -> None:
    again = (
        Notebook(attempt=2, start=110).steps(5, 110, 120, 130, 140).steps(6, 140, 150).exits(150)
    )
    (disruption,) = told(first_try().killed(100), again).disruptions
    assert (disruption.lost_steps, disruption.wasted_ns) == (5, 50 * SECOND)


def test_what_is_lost_is_the_cost_of_the_attempt_that_did_it_also_in_a_crash_loop() -> None:
    loop = [Notebook(attempt=n, start=100 + n * 10).killed(105 + n * 10) for n in (2, 3)]
    last = Notebook(attempt=4, start=200).steps(5, 200, 210).exits(210)
    goodput = told(first_try().killed(100), *loop, last)
    assert [d.lost_steps for d in goodput.disruptions] == [5, 0, 0]
    assert [d.back_ns is None for d in goodput.disruptions] == [True, True, False]


def test_work_is_not_lost_before_it_is_done_again() -> None:
    """While the next attempt has not begun a step, nobody knows where it will go on."""
    first, second = first_try().killed(100), Notebook(attempt=2, start=150)
    assert spent(told(first, second, now=160))["productive"] == 100


def test_an_open_step_already_takes_back_what_it_will_do_again_once_it_is_done() -> None:
    first = first_try().killed(100)
    second = Notebook(attempt=2, start=150).step(6, 150, 160)
    assert spent(told(first, second))["wasted_progress"] == 40


@pytest.mark.parametrize("goes_on_at, kept", [(3, True), (7, True), (2, False), (0, False)])
def test_an_unfinished_step_was_kept_if_the_run_goes_on_after_it(
    goes_on_at: int, kept: bool
) -> None:
    first = Notebook().steps(0, 0, 10, 20).step(2, 20).killed(30)
    second = Notebook(attempt=2, start=50).steps(goes_on_at, 50, 60).exits(60)
    name = "productive" if kept else "wasted_progress"
    assert rows(told(first, second), 20, 30) == [(20, 30, name)]


@pytest.mark.parametrize(
    "goes_on_at, name", [(8, "productive"), (7, "productive"), (6, "wasted_progress")]
)
def test_an_unfinished_step_that_was_kept_takes_back_what_it_did_again(
    goes_on_at: int, name: str
) -> None:
    """The second attempt is killed in the step that it goes back to."""
    first, second = first_try().killed(100), Notebook(attempt=2, start=150).step(6, 150).killed(160)
    third = Notebook(attempt=3, start=200).steps(goes_on_at, 200, 210).exits(210)
    assert rows(told(first, second, third), 50, 160) == [
        (50, 60, "productive"),
        (60, 100, "wasted_progress"),
        (100, 150, "infrastructure_recovery"),
        (150, 160, name),
    ]


# ── means ──────────────────────────────────────────────────────────────────────────────────────


def test_means_over_disruptions() -> None:
    first = Notebook(start=50).steps(0, *range(50, 110, 10)).killed(100)
    second = Notebook(attempt=2, start=120).steps(5, 130, 140).killed(140)
    third = Notebook(attempt=3, start=180).steps(6, 200, 210).exits(220)
    goodput = told(first, second, third)
    assert mean_time_between_failures_ns(goodput) == (220 - 50 - 20 - 40) * SECOND // 2
    assert mean_time_to_recovery_ns(goodput) == (30 + 60) * SECOND // 2


def test_means_over_nothing() -> None:
    goodput = told(first_try().exits(100))
    assert mean_time_between_failures_ns(goodput) is mean_time_to_recovery_ns(goodput) is None
    down = told(first_try().killed(100))
    assert mean_time_between_failures_ns(down) == 100 * SECOND
    assert mean_time_to_recovery_ns(down) is None


def test_attempts_are_summed_up() -> None:
    goodput = told(first_try().killed(104), Notebook(attempt=2, start=150).steps(6, 150, 165, 180))
    first, second = goodput.attempts
    assert (first.steps, first.first_step, first.last_step) == (10, 0, 9)
    assert (first.start_ns, first.stop_ns, first.ideal_step_ns) == (0, 104 * SECOND, 10 * SECOND)
    assert (second.steps, second.first_step, second.last_step) == (2, 6, 7)
