"""Programs that hang are named, programs that only look like it are left alone.

A sample of the laboratory; `make soak` runs all of it, `python -m
tests.integration.laboratory.table` writes what was said into docs/stacks.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import table
from tests.integration.laboratory.cases import (
    CASES,
    EVERY_DAY_HANGS,
    EVERY_DAY_LOOK_ALIKES,
    HANGS,
    LOOK_ALIKES,
)
from tests.integration.laboratory.trials import Laboratory, Outcome

AT_ONCE = 6


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """All at once: most of the time they do nothing."""
    laboratory = Laboratory(tmp_path_factory.mktemp("laboratory") / "root")
    try:
        names = (*EVERY_DAY_LOOK_ALIKES, *EVERY_DAY_HANGS)
        yield {found.case.name: found for found in laboratory.outcomes(names, AT_ONCE)}
    finally:
        laboratory.close()


@pytest.mark.xdist_group("laboratory")
@pytest.mark.parametrize("name", EVERY_DAY_HANGS)
def test_a_hang_is_an_alarm_that_names_its_line(name: str, outcomes: dict[str, Outcome]) -> None:
    found = outcomes[name]
    assert not found.wrong, found.told
    print(f"{name}: {found.seconds:.1f} s beyond the threshold: {found.told[-1].text}")


@pytest.mark.xdist_group("laboratory")
@pytest.mark.parametrize("name", EVERY_DAY_LOOK_ALIKES)
def test_a_look_alike_is_a_note_at_most(name: str, outcomes: dict[str, Outcome]) -> None:
    found = outcomes[name]
    assert not found.wrong, found.told
    assert found.loudest == "note", "it is seen, and no alarm"


def test_there_are_enough_cases_of_each_sort() -> None:
    assert len(HANGS) >= 25 and len(LOOK_ALIKES) >= 25
    assert all(case.place for case in CASES.values() if case.hangs and case.marks)


def test_the_page_lists_every_case_and_no_other() -> None:
    text = table.PAGE.read_text()
    part = text.split(table.BEGIN)[1].split(table.END)[0]
    listed = re.findall(r"^\| (`\w+`: .*?) \|", part, re.MULTILINE)
    assert sorted(listed) == sorted(table.first_cell(case) for case in CASES.values())


@pytest.mark.soak
def test_all_of_the_laboratory(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "root")
    try:
        outcomes = list(laboratory.outcomes(tuple(CASES), at_once=2))
    finally:
        laboratory.close()
    wrong = "\n".join(outcome.wrong for outcome in outcomes if outcome.wrong)
    assert not wrong, wrong
    worst = max((each for each in outcomes if each.case.hangs), key=lambda each: each.seconds)
    print(f"{worst.case.name}: {worst.seconds:.1f} s beyond the threshold, the worst")
