"""The room of rules: one file, one line, one shape."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from runwatch.views.diagnosis import rules
from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.rules import RULES, first_blame, rule
from runwatch.views.diagnosis.scene import Scene
from tests.unit.views.diagnosis.stories import CAUSES, collective, loading, rank, recorded


def test_every_file_is_a_rule_and_every_rule_is_a_file() -> None:
    files = {path.stem for path in Path(rules.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(RULES)
    assert len(RULES) == len(files)


@pytest.mark.parametrize("name", RULES)
def test_rules_have_one_shape(name: str) -> None:
    signature = inspect.signature(rule(name).blame)
    assert list(signature.parameters) == ["scene"]
    assert signature.return_annotation in ("Blame | None", "Blame")
    assert rule(name).__doc__


@pytest.mark.parametrize("name", RULES[:-1])
def test_a_rule_that_does_not_apply_leaves_it_to_the_next(name: str) -> None:
    same = Scene({number: rank(number, collective()) for number in range(4)})
    assert rule(name).blame(same) is None


def test_the_last_rule_always_answers() -> None:
    assert rule(RULES[-1]).blame(Scene({})) == Blame(RULES[-1], (), "cannot tell")


@pytest.mark.parametrize("cause", CAUSES)
def test_an_answer_is_named_after_its_rule(cause: str) -> None:
    scene = Scene(recorded(cause))
    answers = {name: rule(name).blame(scene) for name in RULES}
    assert all(blame is None or blame.rule == name for name, blame in answers.items())


def test_the_first_rule_that_answers_decides() -> None:
    ranks = {number: rank(number, collective()) for number in range(3)}
    scene = Scene({**ranks, 3: rank(3, loading()), 4: rank(4, loading(), state="T")})
    assert rule("elsewhere").blame(scene) is not None
    blame = first_blame(scene)
    assert (blame.rule, blame.ranks) == ("stopped", (4,))
