"""Rules that name the rank which keeps the others waiting: one file each, one line each in `RULES`.

A rule is a file with a function `blame(scene)` (`Rule` in `blame.py`).  It returns a `Blame` in its
own words, or None when it does not apply.  Rules do not know each other: comparisons that several
rules need are in `comparing.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from runwatch.views.diagnosis.blame import Blame, Rule
from runwatch.views.diagnosis.scene import Scene

RULES: Final = (
    # The first rule that answers decides, so the strongest evidence comes first.
    "stopped",
    "ended",
    "alone",
    "running",
    "elsewhere",
    "mismatch",
    "step",
    "crowd",
    "nothing",  # always answers
)


def rule(name: str) -> Rule:
    return cast(Rule, import_module(f"{__name__}.{name}"))


def first_blame(scene: Scene) -> Blame:
    return next(blame for name in RULES if (blame := rule(name).blame(scene)) is not None)
