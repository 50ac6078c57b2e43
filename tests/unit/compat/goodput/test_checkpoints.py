from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runwatch.compat.goodput.checkpoint_badput_calculator import (
    OPERATION_TYPE_LOCAL,
    OPERATION_TYPE_PERSISTENT,
    CheckpointBadputCalculator,
    CheckpointLoggerOptions,
)
from tests.unit.compat.goodput.support import Entry, recorded, told


def calculator(entries: list[Entry]) -> CheckpointBadputCalculator:
    made = CheckpointBadputCalculator(CheckpointLoggerOptions(use_goodput_logger=True))
    made.entries = list(entries)
    return made


@pytest.mark.parametrize(
    "job",
    [job for job in recorded(purposeful=False) if job["checkpoints"]],
    ids=lambda job: job["name"],
)
def test_statistics_are_those_of_the_original(job: dict[str, Any]) -> None:
    asked = calculator(job["entries"])
    for kind, expected in job["checkpoints"].items():
        save = asked.calculate_save_operation_checkpoint_manager_blocking_time(kind)
        restore = asked.calculate_restore_operation_checkpoint_manager_blocking_time(kind)
        assert vars(save) == pytest.approx(expected["save"], abs=1e-9)
        assert vars(restore) == pytest.approx(expected["restore"], abs=1e-9)


def test_no_checkpoints() -> None:
    asked = calculator(told("J 0; S 0 5; j 9"))
    save = asked.calculate_save_operation_checkpoint_manager_blocking_time()
    assert set(vars(save).values()) == {0.0}


def test_which_entries_are_meant() -> None:
    save, local, restore = told("V 1 gs://a 4 10; V 1 /l 3 11; T 3 gs://a 2 40")
    emergency = restore | {"event_type": "emergency_restore"}
    entries = [save, local, restore, emergency, {"job_name": "job"}]
    asked = calculator([])

    def saves(*kind: str) -> list[bool]:
        return [asked.is_valid_save_stats(entry, *kind) for entry in entries]

    def restores(*kind: str) -> list[bool]:
        return [asked.is_valid_restore_stats(entry, *kind) for entry in entries]

    assert saves() == [True, True, False, False, False]
    assert saves(OPERATION_TYPE_PERSISTENT) == [True, False, False, False, False]
    assert saves(OPERATION_TYPE_LOCAL) == [False, True, False, False, False]
    assert restores() == [False, False, True, True, False]
    assert restores(OPERATION_TYPE_PERSISTENT) == [False, False, True, False, False]
    assert restores(OPERATION_TYPE_LOCAL) == [False, False, False, True, False]


def test_what_was_not_measured_is_left_out() -> None:
    """B11: the original raises."""
    whole, *_ = told("V 1 gs://a 4 10")
    broken = [{**whole, "checkpoint_manager_blocking_duration_secs": None}, {**whole}, {**whole}]
    del broken[1]["checkpoint_manager_blocking_duration_secs"], broken[2]["directory"]
    asked = calculator([whole, *broken])
    save = asked.calculate_save_operation_checkpoint_manager_blocking_time()
    assert save.total_checkpoint_manager_blocking_time == 4 + 4  # persistent, and one of no place
    assert save.maximum_checkpoint_manager_blocking_time == 4


def test_a_cloud_logging_client_is_asked_for_checkpoints() -> None:
    questions: list[dict[str, Any]] = []
    entries = told("J 0; V 1 gs://a 4 10")

    def list_entries(**question: Any) -> list[SimpleNamespace]:
        questions.append(question)
        return [SimpleNamespace(payload=entry) for entry in entries]

    client = SimpleNamespace(logger=lambda name: SimpleNamespace(list_entries=list_entries))
    asked = CheckpointBadputCalculator(CheckpointLoggerOptions("job", "log", client))
    assert asked.read_entries() == entries[1:] == asked.entries
    save = asked.calculate_save_operation_checkpoint_manager_blocking_time()
    assert save.total_checkpoint_manager_blocking_time == 4
    assert 'jsonPayload.job_name="job"' in questions[0]["filter_"]
    assert "event_type=emergency_restore" in questions[0]["filter_"]
