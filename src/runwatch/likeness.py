"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST: Final = 3
LIKE: Final = 0.6
"""How alike two names must be; 1 is the same."""
CLOSE: Final = 0.15
"""Only those are named that are nearly as alike as the best."""


def meant(wrong: str, known: Iterable[str]) -> str:
    """`: did you mean 'loss'?`, or nothing."""
    found = near(wrong, known)
    return f": did you mean {either(found)}?" if found else ""


def near(wrong: str, known: Iterable[str]) -> list[str]:
    from difflib import SequenceMatcher  # only who made a mistake waits for it

    matcher = SequenceMatcher(b=wrong.casefold())
    likeness: dict[str, float] = {}
    for name in known:
        folded = name.casefold()
        matcher.set_seq1(folded)
        if matcher.real_quick_ratio() < LIKE and not folded.startswith(wrong.casefold()):
            continue
        # The beginning of a name is as good as a letter that is wrong.
        begins = bool(wrong) and folded.startswith(wrong.casefold())
        likeness[name] = max(matcher.ratio(), 0.9 if begins else 0.0)
    best = sorted(likeness, key=lambda name: (-likeness[name], name))
    least = max(LIKE, max(likeness.values(), default=0.0) - CLOSE)
    return [name for name in best if likeness[name] >= least][:MOST]


def either(names: list[str]) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}" if most else last
