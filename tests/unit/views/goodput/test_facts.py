"""What lies in journals, as a story: span edges, waits, events, and the entries of recorders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from runwatch.record import (
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    SpanName,
)
from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.facts import nanoseconds
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


def in_pieces(book: Notebook, cuts: Sequence[int]) -> Goodput:
    scribe = scribe_for([book])
    for first, last in pairwise([0, *cuts, len(book.records)]):
        scribe.batch(book.batch(first, last))
        scribe.ledger.settle()
    goodput = goodput_of(scribe, [book], last_ns([book]))
    assert goodput is not None
    return goodput


# ── journals of Runwatch's own ─────────────────────────────────────────────────────────────────


def test_steps_and_spans() -> None:
    book = Notebook().span("accelerator_init", 0, 5).step(0, 6, 16).span("evaluation", 16, 20)
    assert rows(told(book.step(1, 20, 30).exits(31))) == [
        (0, 5, "accelerator_init"),
        (5, 6, "training_preparation"),
        (6, 16, "productive"),
        (16, 20, "evaluation"),
        (20, 30, "productive"),
        (30, 31, "unattributed"),
    ]


def test_the_wait_for_data_is_before_its_step_wherever_batches_end() -> None:
    book = (
        Notebook().step(0, 5, 15, wait=4).step(1, 18, 28, wait=3).step(2, 30, 40, wait=9).exits(40)
    )
    expected = [
        (0, 1, "training_preparation"), (1, 5, "data_loading"), (5, 15, "productive"),
        (15, 18, "data_loading"), (18, 28, "productive"), (28, 30, "data_loading"),
        (30, 40, "productive"),
    ]  # fmt: skip
    assert rows(told(book)) == expected
    for cut in range(len(book.records)):
        assert rows(in_pieces(book, [cut])) == expected


def test_waits_of_a_step_that_is_done_twice_go_where_they_belong() -> None:
    book = Notebook().step(0, 0, 5).step(1, 10, 15, wait=5).step(1, 17, 25, wait=1).exits(25)
    expected = {"data_loading": 6, "wasted_progress": 5, "unattributed": 1, "productive": 13}
    assert spent(told(book)) == expected
    for cut in range(len(book.records)):
        assert spent(in_pieces(book, [cut])) == expected


def test_a_stretch_known_at_its_end_claims_the_time_before_it() -> None:
    span = (book := Notebook()).begin("step", 0, 0)
    book.elapsed("compile", 12, 14).end("step", span, 20, 0).steps(1, 20, 28, 36).exits(36)
    found = rows(told(book))
    assert found == [(0, 2, "productive"), (2, 14, "program_startup"), (14, 36, "productive")]
    for cut in range(len(book.records)):
        assert rows(in_pieces(book, [cut])) == found


def test_a_stretch_may_be_told_a_while_later() -> None:
    span = (book := Notebook()).begin("step", 0, 0)
    book.event("elapsed", {"name": "compile", "seconds": 8, "ago_seconds": 5}, 15)
    book.end("step", span, 20, 0).steps(1, 20, 32, 44).exits(44)
    assert rows(told(book)) == [
        (0, 2, "productive"),
        (2, 10, "program_startup"),
        (10, 44, "productive"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "compile"},
        {"name": "compile", "seconds": None},
        {"name": "compile", "seconds": "3"},
        {"name": "compile", "seconds": -3},
        {"name": "compile", "seconds": 3, "ago_seconds": "1"},
        {"name": 7, "seconds": 3},
        {"name": "compile/background", "seconds": 3},
    ],
)
def test_a_stretch_that_makes_no_sense_is_passed_over(body: dict[str, Any]) -> None:
    book = Notebook().steps(0, 0, 10, 20).event("elapsed", body, 25).steps(2, 30, 40).exits(40)
    assert spent(told(book)) == {"productive": 30, "unattributed": 10}


def test_what_runs_in_the_background_takes_none_of_the_runs_time() -> None:
    book = Notebook().steps(0, 0, 10).span("checkpoint_save/background", 12, 18).steps(1, 20, 30)
    assert spent(told(book.exits(30))) == {"productive": 20, "unattributed": 10}


def test_a_step_without_a_number_is_counted_on() -> None:
    book = Notebook()
    for begin in (0, 10, 20):
        book.end("step", book.begin("step", begin, NO_STEP), begin + 10)
    goodput = told(book.exits(30))
    assert (goodput.steps, goodput.max_productive_step) == (3, 2)


def test_another_runs_records_in_the_same_journal_are_not_this_runs() -> None:
    book = Notebook().steps(0, 0, 10, 20).exits(20)
    batch = book.batch()
    batch.definitions += [RunScope(9, RunId("other"), "other"), SpanName(50, "evaluation", 9)]
    batch.spans.append(50, 99, 0, 12 * SECOND, NO_STEP)
    batch.spans.append(50, 99, 1, 14 * SECOND, NO_STEP)
    batch.events.append(Event(14 * SECOND, "elapsed", {"name": "compile", "seconds": 5}, scope=9))
    scribe = scribe_for([book])
    scribe.batch(batch)
    goodput = goodput_of(scribe, [book], 20 * SECOND)
    assert goodput is not None
    assert spent(goodput) == {"productive": 20}


def test_a_journal_that_was_not_announced_is_passed_over() -> None:
    book, stranger = Notebook().steps(0, 0, 10).exits(10), Notebook(name="stranger").steps(0, 0, 99)
    scribe = scribe_for([book])
    scribe.batch(stranger.batch())
    scribe.batch(book.batch())
    goodput = goodput_of(scribe, [book], 10 * SECOND)
    assert goodput is not None
    assert spent(goodput) == {"productive": 10}


def test_a_batch_without_anything_for_the_account_changes_nothing() -> None:
    scribe = scribe_for([book := Notebook().steps(0, 0, 10).exits(10)])
    scribe.batch(Batch(Origin(book.journal, "host", 1, 0), Position(0), Position(0)))
    scribe.batch(Batch(Origin(JournalId("nobody"), "host", 1, 0), Position(0), Position(0)))
    scribe.batch(book.batch())
    goodput = goodput_of(scribe, [book], 10 * SECOND)
    assert goodput is not None
    assert spent(goodput) == {"productive": 10}


# ── entries of a recorder ──────────────────────────────────────────────────────────────────────


def test_a_job_as_the_original_records_it() -> None:
    book = Notebook().entry("job_start_time", 0).entries("tpu_init", 0, 1)
    book.entries("training_prep", 1, 3).entries("data_loading", 3, 5)
    goodput = told(book.begins(0, 5, 8, 11, 14, 17).entry("job_end_time", 20), now=500)
    assert rows(goodput) == [
        (0, 1, "accelerator_init"),
        (1, 3, "training_preparation"),
        (3, 5, "data_loading"),
        (5, 20, "productive"),
    ]
    assert (goodput.steps, goodput.max_productive_step, goodput.live) == (5, 4, False)


def test_custom_events_have_their_type_in_lower_case() -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10)
    book.entries("custom_badput_event", 12, 15, "EVAL_STEP").begins(2, 23, 33, 43)
    book.entry("job_end_time", 53)
    assert spent(told(book)) == {"productive": 50, "custom:eval_step": 3}


@pytest.mark.parametrize(
    "kind, name",
    [
        ("elastic_scale_up", "elastic_scale_up"),
        ("SCALE_UP", "elastic_scale_up"),
        ("slice_down", "elastic_slice_down"),
        ("whatever", "elastic_slice_down"),
    ],
)
def test_elastic_waits_by_their_type(kind: str, name: str) -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10)
    book.entries("elastic_wait", 12, 17, kind).begins(2, 20).entry("job_end_time", 30)
    assert spent(told(book))[name] == 5


def test_an_elastic_reinitialisation_contains_init_and_preparation() -> None:
    book = (
        Notebook()
        .entry("job_start_time", 0)
        .begins(0, 0, 10)
        .entry("elastic_reinit_start_time", 20)
    )
    book.entries("tpu_init", 22, 27).entries("training_prep", 28, 33)
    book.entry("elastic_reinit_end_time", 40).begins(2, 40, 50).entry("job_end_time", 60)
    assert spent(told(book)) == {"productive": 40, "elastic_reinitialization": 20}


def test_a_second_start_is_a_second_attempt() -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20)
    book.entry("job_start_time", 50).begins(2, 60, 70).entry("job_end_time", 80)
    goodput = told(book)
    assert rows(goodput) == [
        (0, 20, "productive"),
        (20, 50, "infrastructure_recovery"),
        (50, 60, "training_preparation"),
        (60, 80, "productive"),
    ]
    assert len(goodput.disruptions) == 1


def test_a_start_that_was_written_twice_is_one_start() -> None:
    book = Notebook().entry("job_start_time", 0).entry("job_start_time", 1).begins(0, 10, 20)
    goodput = told(book.entry("job_end_time", 30))
    assert (len(goodput.attempts), goodput.disruptions, goodput.start_ns) == (1, [], 0)


def test_what_is_recorded_before_the_start_belongs_to_it() -> None:
    book = Notebook().entries("tpu_init", 0, 5).entry("job_start_time", 5).begins(0, 10, 20)
    goodput = told(book.entry("job_end_time", 30))
    assert rows(goodput) == [
        (0, 5, "accelerator_init"), (5, 10, "training_preparation"), (10, 30, "productive"),
    ]  # fmt: skip
    assert goodput.disruptions == []


def test_entries_without_any_start() -> None:
    assert rows(told(Notebook(start=3).begins(0, 5, 10, 15), now=20)) == [(5, 20, "productive")]


def test_how_the_process_ended_where_the_program_did_not_say() -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20).killed(25)
    (disruption,) = told(book).disruptions
    assert (disruption.time_ns, "SIGKILL" in disruption.cause) == (25 * SECOND, True)


def test_an_imported_log_ends_where_it_ends() -> None:
    book = Notebook().event("run_start", {"imported": True}, 0).entry("job_start_time", 1)
    goodput = told(book.begins(0, 10, 20, 30), now=10_000)
    assert (goodput.end_ns, goodput.live) == (30 * SECOND, False)
    assert goodput.disruptions[0].cause == "the log ends here"


def test_recorded_steps_and_entries_in_one_journal_wherever_batches_end() -> None:
    book = (
        Notebook().steps(0, 0, 10, 20).entry("job_start_time", 21).entries("data_loading", 22, 28)
    )
    book.step(2, 30, 40).exits(40)
    expected = [
        (0, 20, "productive"), (20, 22, "unattributed"), (22, 28, "data_loading"),
        (28, 30, "unattributed"), (30, 40, "productive"),
    ]  # fmt: skip
    assert rows(told(book)) == expected
    assert told(book).disruptions == []
    for cut in range(len(book.records)):
        assert rows(in_pieces(book, [cut])) == expected


def test_entries_of_no_known_kind_are_spans_of_their_own() -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10).entries("coffee", 12, 14)
    book.begins(2, 22, 32, 42).entry("job_end_time", 52)
    assert spent(told(book)) == {"productive": 50, "custom:coffee": 2}


# ── what Orbax writes ──────────────────────────────────────────────────────────────────────────


def test_saves_and_restores_by_orbax() -> None:
    book = Notebook().entry("job_start_time", 0).checkpoint("restore", 2, 6).begins(0, 10, 20)
    book.checkpoint("save", 22, 4).begins(2, 34, 44, 54)
    goodput = told(book.entry("job_end_time", 64))
    assert spent(goodput) == {
        "training_preparation": 4, "checkpoint_restore": 6, "productive": 50, "checkpoint_save": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"event_type": "save"},
        {"event_type": "save", "checkpoint_manager_blocking_start_time": None},
        {"event_type": "save", "checkpoint_manager_blocking_start_time": 22.0,
         "checkpoint_manager_blocking_duration_secs": None},
        {"event_type": "save", "checkpoint_manager_blocking_start_time": 22.0,
         "checkpoint_manager_blocking_duration_secs": -4.0},
        {"event_type": "delete", "checkpoint_manager_blocking_start_time": 22.0,
         "checkpoint_manager_blocking_duration_secs": 4.0},
        {"active_slices": 2, "total_slices": 4},
        "nonsense",
    ],
)  # fmt: skip
def test_entries_that_say_nothing_of_time_are_passed_over(entry: object) -> None:
    book = Notebook().entry("job_start_time", 0).begins(0, 0, 10, 20)
    book.event("goodput_entry", {"logger": "log", "entry": entry}, 26)
    assert spent(told(book.begins(3, 30).entry("job_end_time", 40))) == {"productive": 40}


def test_seconds_of_today_are_exact_to_the_microsecond() -> None:
    assert nanoseconds(1_763_190_000.123456) == 1_763_190_000_123_456_000
    assert nanoseconds(0.0) == 0


def test_a_useful_span_is_productive_wherever_it_lies() -> None:
    book = Notebook().steps(0, 0, 10).span("rollout/useful", 10, 40).steps(1, 40, 50)
    book.elapsed("reward/useful", 5, 60).step(2, 60, 80)
    book.span("evaluation", 80, 90)
    goodput = told(book.span("rollout/useful/background", 90, 95).exits(100))
    assert spent(goodput) == {
        "productive": 10 + 30 + 10 + 5 + 20, "evaluation": 10, "unattributed": 5 + 10,
    }  # fmt: skip
