"""Why an instant is in its class: the words go with the account, whatever the run."""

from __future__ import annotations

from random import Random

import pytest

from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.explaining import _RULES, explain
from tests.truth.families import gather
from tests.truth.telling import account_of
from tests.unit.views.goodput.story import SECOND, Notebook, told

FAMILIES = (
    "async_saves", "uneven_one_step_8x", "hang_in_step_recovers", "hang_then_killed",
    "elastic_shrink_and_grow_with_rewind", "preempted_and_back_a_little", "crash_while_saving",
    "two_complete_goes", "spans_nested", "plain_with_evaluation",
)  # fmt: skip


def account(name: str) -> Goodput:
    return account_of(gather()[name].make(Random(f"{name} 0")), Random(0))


def test_there_are_words_for_every_class() -> None:
    assert {spent.name.lower() for spent in Spent} == set(_RULES)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_instant_has_the_class_that_the_account_gives_it(name: str) -> None:
    goodput = account(name)
    seen = set()
    for start, end, spent in list(goodput.intervals())[::7]:
        found = explain(goodput, (start + end) // 2)
        assert found is not None and found.name == spent
        assert found.start_ns <= start < end <= found.end_ns
        assert found.why and all(sentence.endswith(".") for sentence in found.why)
        seen.add(spent)
    assert len(seen) > 2
    assert explain(goodput, goodput.start_ns - 1) is None
    assert explain(goodput, goodput.end_ns) is None


def test_a_stall_names_the_step_the_usual_and_the_limit() -> None:
    book = Notebook().steps(0, *range(40))
    book.step(39, 39, 99).steps(40, *range(99, 140)).exits(140)
    goodput = told(book)
    found = explain(goodput, 70 * SECOND)
    assert found is not None and (found.name, found.step) == ("stall", 39)
    words = " ".join(found.why)
    assert "took 60.0 s; a step usually takes 1.0 s" in words
    assert "A pause of more than 90.0 s" in words or "A pause of more than 10.0 s" in words


def test_a_hand_over_says_what_it_is_taken_for() -> None:
    goodput = account("gpu_read_every_step")
    found = explain(goodput, goodput.laps[0].begins[200] + 100_000)
    assert found is not None and (found.name, found.step) == ("unattributed", 200)
    assert "half a millisecond" in " ".join(found.why)


def test_lost_work_says_when_the_run_went_back() -> None:
    first = Notebook().steps(0, *range(31)).killed(30, "killed by SIGKILL")
    second = Notebook(attempt=2, start=40).steps(20, *range(50, 81)).exits(81)
    found = explain(told(first, second), 25 * SECOND)
    assert found is not None and found.name == "wasted_progress"
    assert any("the run went back to step 20" in sentence for sentence in found.why)
