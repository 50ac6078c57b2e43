"""The account of real programs beside what each measured itself, in the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth.real import ALL, Program, beside

SAMPLE = [program for program in ALL if program.short]


@pytest.mark.parametrize("program", SAMPLE, ids=lambda program: program.name)
def test_the_account_is_what_the_program_measured(program: Program, tmp_path: Path) -> None:
    found = beside(program, tmp_path, program.short)
    assert not list(found.faults()), found


@pytest.mark.soak
@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_account_of_every_program_is_what_it_measured(program: Program, tmp_path: Path) -> None:
    found = beside(program, tmp_path, program.steps)
    assert not list(found.faults()), found
