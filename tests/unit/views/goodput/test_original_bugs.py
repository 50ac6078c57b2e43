"""Stories that the original library gets wrong, by the number of the bug: the account beside what
the original answers (measured with its version 0.2.3)."""

from __future__ import annotations

import pytest

from runwatch.views.goodput.account import Goodput
from tests.unit.views.goodput.story import SECOND, Notebook, rows, spent, told


def job(start: int = 0) -> Notebook:
    return Notebook(start=start).entry("job_start_time", start)


def percent(goodput: Goodput) -> float:
    share = goodput.account().goodput
    assert share is not None
    return round(100 * share, 2)


def test_b04_an_exact_resume_is_a_disruption_and_its_outage_is_not_productive() -> None:
    """Original: 99.17 %, no disruption, the classes sum to 108 %."""
    book = job().begins(0, *range(0, 100, 10))  # the last of them at 90
    book.entry("job_start_time", 980).begins(10, *range(990, 1090, 10)).entry("job_end_time", 1090)
    goodput = told(book)
    assert spent(goodput) == {
        "productive": 90 + 100, "infrastructure_recovery": 890, "training_preparation": 10,
    }  # fmt: skip
    assert percent(goodput) == 17.43
    assert len(goodput.disruptions) == 1
    assert goodput.disruptions[0].lost_steps == 0


def test_b04_an_exact_resume_with_a_known_exit_keeps_the_last_step() -> None:
    first = job().begins(0, *range(0, 100, 10)).killed(100)
    second = Notebook(attempt=2, start=990).entry("job_start_time", 990)
    second.begins(10, *range(990, 1090, 10)).entry("job_end_time", 1090)
    goodput = told(first, second)
    assert spent(goodput) == {"productive": 200, "infrastructure_recovery": 890}
    assert goodput.steps == 20


def test_b05_a_hang_is_a_stall() -> None:
    """Original: 98.63 % for 300 s of hanging among 3 s steps."""
    times = [*range(0, 60, 3), *range(360, 420, 3)]
    goodput = told(job().begins(0, *times).entry("job_end_time", 420))
    assert spent(goodput) == {"productive": 120, "stall": 300}
    assert percent(goodput) == 28.57
    assert goodput.inferred_ns == 300 * SECOND  # it may have been what that step took


def test_b05_a_hang_that_goes_on_is_seen_while_it_does() -> None:
    goodput = told(job().begins(0, *range(0, 60, 3)), now=360)
    assert rows(goodput)[-1] == (60, 360, "stall")


def test_b06_blocking_loads_in_the_loop_are_not_productive() -> None:
    """Original: 92.86 %, with 95 s of "asynchronous" loading beside it."""
    book = job()
    for step in range(20):
        book.entries("data_loading", step * 10, step * 10 + 5).begins(step, step * 10 + 5)
    goodput = told(book.entry("job_end_time", 200))
    assert spent(goodput) == {"productive": 100, "data_loading": 100}


def test_b07_a_window_is_as_long_as_it_was_asked_for() -> None:
    """Original: 100 % for 500–5000 s though the last entry is at 1020 s."""
    goodput = told(job().begins(0, *range(0, 1021, 20)), now=5000)
    account = goodput.account(500 * SECOND, 5000 * SECOND)
    assert account.total_ns == 4500 * SECOND
    assert account.spent_ns["productive"] == (1040 - 500) * SECOND
    assert account.spent_ns["stall"] == (5000 - 1040) * SECOND


def test_b07_a_window_without_entries_has_an_answer() -> None:
    """Original: ValueError, also for a window shorter than a step."""
    goodput = told(job().begins(0, *range(0, 1000, 200)), now=1000)
    account = goodput.account(450 * SECOND, 550 * SECOND)
    assert account.goodput == 1.0
    assert told(job(), now=500).account(100 * SECOND, 200 * SECOND).goodput == 0.0


def test_b08_a_job_may_go_on_after_its_end() -> None:
    """Original: every query raises ValueError until there is another end."""
    book = job().begins(0, 0, 10).entry("job_end_time", 20)
    assert not told(book, now=30).live
    book.begins(2, 30, 40)
    goodput = told(book, now=45)
    assert goodput.live
    assert rows(goodput) == [
        (0, 20, "productive"),
        (20, 30, "unattributed"),
        (30, 45, "productive"),
    ]


def test_b08_a_name_that_is_used_again_is_a_second_attempt() -> None:
    book = job().begins(0, 0, 10).entry("job_end_time", 20)
    goodput = told(book.entry("job_start_time", 100).begins(0, 100, 110), now=120)
    assert len(goodput.attempts) == 2
    assert spent(goodput) == {"productive": 40, "excluded": 80}
    assert goodput.disruptions == []
    assert goodput.account().goodput == 1.0


def test_b09_nested_spans_are_counted_once() -> None:
    """Original: the classes of a restore of 30 s within 50 s of preparation sum to 130 %."""
    book = job().entry("training_prep_start_time", 0).checkpoint("restore", 10, 30)
    book.entry("training_prep_end_time", 50)
    assert spent(told(book.begins(0, 50, 75).entry("job_end_time", 100))) == {
        "training_preparation": 20, "checkpoint_restore": 30, "productive": 50,
    }  # fmt: skip


def test_b09_init_within_preparation_is_counted_once() -> None:
    """Original: 122 %."""
    book = job().entry("training_prep_start_time", 0).entries("tpu_init", 10, 32)
    book.entry("training_prep_end_time", 50).begins(0, 50, 75).entry("job_end_time", 100)
    assert spent(told(book)) == {
        "training_preparation": 28, "accelerator_init": 22, "productive": 50,
    }  # fmt: skip


def test_b09_elastic_waits_and_reinitialisation_are_counted_once() -> None:
    """Original: 152 %, for a wait and a re-initialisation with the run resumed in place."""
    book = job().begins(0, 0, 10, 20).entries("elastic_wait", 20, 60, "slice_down")
    book.entries("elastic_reinit", 60, 80).begins(2, 80, 90).entry("job_end_time", 100)
    assert spent(told(book)) == {
        "productive": 40, "elastic_slice_down": 40, "elastic_reinitialization": 20,
    }  # fmt: skip


def test_b10_work_before_a_restart_at_step_0_is_wasted() -> None:
    """Original: the 90 s lost are in OTHER."""
    book = job().begins(0, *range(0, 100, 10)).entry("job_start_time", 200)
    goodput = told(book.begins(0, 200, 210, 220).entry("job_end_time", 230))
    assert spent(goodput) == {
        "wasted_progress": 90, "infrastructure_recovery": 110, "productive": 30,
    }  # fmt: skip
    assert goodput.disruptions[0].lost_steps == 9


def test_b11_a_save_in_a_wasted_region_is_a_save_and_takes_nothing_from_what_stands() -> None:
    """Original: subtracts it from productive time."""
    book = job().begins(0, 0, 10, 20, 30).checkpoint("save", 32, 4).begins(4, 44)
    book.entry("job_start_time", 64).begins(2, 64, 74, 84).entry("job_end_time", 94)
    assert spent(told(book)) == {
        "productive": 20 + 30, "wasted_progress": 20, "checkpoint_save": 4,
        "infrastructure_recovery": 20,
    }  # fmt: skip


def test_b11_one_step_saved_in_two_attempts_is_two_saves() -> None:
    """Original: averages 4 s and 8 s to 6 s."""
    book = job().begins(0, 0, 10, 20).checkpoint("save", 21, 4).begins(3, 30)
    book.entry("job_start_time", 60).begins(2, 60).checkpoint("save", 62, 8)
    assert spent(told(book.begins(3, 75).entry("job_end_time", 80)))["checkpoint_save"] == 12


def test_b11_a_save_without_a_duration_spoils_nothing() -> None:
    """Original: TypeError or KeyError from every query."""
    book = job().begins(0, 0, 10)
    entry = {"event_type": "save", "checkpoint_manager_blocking_duration_secs": None, "step": 1}
    book.event("goodput_entry", {"logger": "log", "entry": entry}, 15)
    assert spent(told(book.begins(2, 20).entry("job_end_time", 30))) == {"productive": 30}


def test_b12_steps_shorter_than_a_second_have_an_ideal() -> None:
    """Original: no ideal step time, and deviations always fail."""
    book = Notebook(unit_ns=SECOND // 1000).entry("job_start_time", 0)
    goodput = told(book.begins(0, *range(0, 10_000, 250)).entry("job_end_time", 10_000))
    assert goodput.ideal_step_ns == SECOND // 4
    assert percent(goodput) == 100


def test_b13_recording_every_tenth_step_is_enough() -> None:
    """Original: 9.9 % for a job that was productive 99 % of the time."""
    book = job()
    for step in range(0, 100, 10):
        book.entry("step_start_time", 10 + step * 10, step)
    goodput = told(book.entry("job_end_time", 1010))
    assert percent(goodput) == 99.01
    assert goodput.disruptions == []


def test_b14_each_start_of_a_crash_loop_pays_for_its_own_compilation() -> None:
    """Original: the last start's 300 s are productive, the others' wasted progress."""
    book = job().begins(0, 0, *range(300, 500, 10))  # steps 0…20
    for start in (600, 1000, 1400):
        book.entry("job_start_time", start).begins(20, start, start + 310)
    goodput = told(book.entry("job_end_time", 1720))
    found = spent(goodput)
    assert found["program_startup"] == 290 + 3 * 300
    assert found["wasted_progress"] == 2 * 10
    assert len(goodput.disruptions) == 3


@pytest.mark.parametrize("late", [1, 2])
def test_b15_an_entry_that_comes_late_is_seen_as_long_as_its_step_is(late: int) -> None:
    """Original: a cursor that has passed it never comes back."""
    book = job().begins(0, 0, 10, 20, 35)
    save = Notebook().checkpoint("save", 22, 5).records
    book.records[4 + late - 1 : 4 + late - 1] = save
    goodput = told(book.entry("job_end_time", 45))
    assert spent(goodput) == {"productive": 40, "checkpoint_save": 5}


def test_b16_exclusions_and_checkpoints_go_together() -> None:
    """Original: 88.1 % in place of 83.3 % once there is a list of exclusions, even an empty one."""
    book = job().begins(0, 0, 10, 20).checkpoint("save", 22, 5).begins(3, 35)
    goodput = told(book.entry("job_end_time", 45))
    assert spent(goodput, []) == spent(goodput) == {"productive": 40, "checkpoint_save": 5}
    assert spent(goodput, [(24, 30)]) == {"productive": 37, "checkpoint_save": 2, "excluded": 6}


def test_b16_excluding_the_whole_job_excludes_all_of_it() -> None:
    """Original: 110 of 130 s; 24 s for a window of 20 s with a load in it; gaps not at all."""
    book = job().entries("data_loading", 10, 20).begins(0, 30, 50, 70).entry("job_end_time", 130)
    goodput = told(book)
    assert spent(goodput, [(0, 130)]) == {"excluded": 130}
    assert spent(goodput, [(5, 25)])["excluded"] == 20
    assert spent(goodput, [(20, 30)])["excluded"] == 10
    assert spent(goodput)["productive"] == 100


def test_b17_asking_about_a_window_changes_no_count() -> None:
    """Original: the number of disruptions becomes the window's."""
    book = (
        job()
        .begins(0, 0, 10, 20)
        .entry("job_start_time", 50)
        .begins(2, 60)
        .entry("job_end_time", 70)
    )
    goodput = told(book)
    goodput.account(60 * SECOND, 70 * SECOND)
    assert len(goodput.disruptions) == 1


def test_b19_a_load_before_a_restart_is_counted_once() -> None:
    """Original: 4 s of synchronous loading though there was one load of 2 s."""
    book = (
        job().entries("tpu_init", 0, 1).entries("training_prep", 1, 3).entries("data_loading", 3, 5)
    )
    book.begins(0, 5, 13, 16, 19, 22).entry("job_start_time", 30).begins(2, 35, 43, 46)
    goodput = told(book.entry("job_end_time", 49))
    assert spent(goodput) == {
        "accelerator_init": 1, "training_preparation": 2 + 5, "data_loading": 2,
        "program_startup": 5 + 5, "productive": 6 + 9, "wasted_progress": 6,
        "infrastructure_recovery": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    "start, end, counted",
    [
        (2, 8, 6),  # before the first step
        (22, 27, 5),  # within a step
        (34, 44, 6),  # across a beginning: a span of the user's own may enclose a step
        (52, 58, 6),  # after the last step's beginning
    ],
)
def test_b20_custom_events_count_wherever_they_are(start: int, end: int, counted: int) -> None:
    """Original: all but the second are dropped, and their time stays productive."""
    book = job()
    times: list[tuple[int, str, int]] = [
        (at, "step_start_time", n) for n, at in enumerate((10, 20, 30, 40, 50))
    ]
    times += [
        (start, "custom_badput_event_start_time", 0),
        (end, "custom_badput_event_end_time", 0),
    ]
    for at, field, number in sorted(times):
        custom = field.startswith("custom")
        book.entry(field, at, number, "eval") if custom else book.entry(field, at, number)
    assert spent(told(book.entry("job_end_time", 60)))["custom:eval"] == counted


def test_b21_entries_written_twice_are_entries() -> None:
    """Original: ten false disruptions in ten steps."""
    once = job().entries("tpu_init", 0, 4).begins(0, *range(5, 105, 10)).entry("job_end_time", 105)
    twice = Notebook()
    twice.records = [record for record in once.records for _ in range(2)]
    assert rows(told(twice)) == rows(told(once))
    assert (told(twice).disruptions, told(twice).steps) == ([], 10)


def test_b21_two_processes_that_write_the_same_are_one_run() -> None:
    first, second = (
        Notebook(rank).entry("job_start_time", 0).begins(0, *range(5, 105, 10)) for rank in (0, 1)
    )
    goodput = told(first.entry("job_end_time", 105), second.entry("job_end_time", 105))
    assert spent(goodput) == {"training_preparation": 5, "productive": 100}
    assert goodput.disruptions == []
