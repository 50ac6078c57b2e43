from __future__ import annotations

import re

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.looks import LOOKS, look_of


def test_every_class_has_one_look() -> None:
    assert sorted(look.name for look in LOOKS) == sorted(spent.name.lower() for spent in Spent)
    assert look_of("custom:eval") is None


def test_looks_can_be_told_apart() -> None:
    for part in ("words", "meaning", "light", "dark"):
        assert len({getattr(look, part) for look in LOOKS}) == len(LOOKS), part
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for look in LOOKS for colour in look[3:5])
