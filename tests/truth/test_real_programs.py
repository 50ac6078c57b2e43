"""The account of real programs beside what each measured itself, in the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth.programs.observed import Stretch, partition
from tests.truth.real import ALL, Program, beside

SAMPLE = [program for program in ALL if program.short]


def test_every_moment_is_the_devices_or_what_the_main_thread_was_at() -> None:
    host = [Stretch(7, 8, "checkpoint_save"), Stretch(6, 10, "evaluation"), Stretch(2, 4, "load")]
    busy = [Stretch(3, 5, "productive"), Stretch(9, 13, "productive")]
    assert partition(0, 1, 12, host, busy) == {
        "training_preparation": 1,
        "unattributed": 2,  # from 1 to 2, from 5 to 6
        "load": 1,
        "productive": 5,  # and what it did after the end is not counted
        "evaluation": 2,
        "checkpoint_save": 1,
    }


@pytest.mark.parametrize("program", SAMPLE, ids=lambda program: program.name)
def test_the_account_is_what_the_program_measured(program: Program, tmp_path: Path) -> None:
    found = beside(program, tmp_path, program.short)
    assert not list(found.faults()), found


@pytest.mark.soak
@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_account_of_every_program_is_what_it_measured(program: Program, tmp_path: Path) -> None:
    found = beside(program, tmp_path, program.steps)
    assert not list(found.faults()), found
