"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST: Final = 3
LIKE: Final = 0.6
"""How alike two names must be; 1 is the same."""
CLOSE: Final = 0.15
"""Only those are named that are nearly as alike as the best."""
BEGINS: Final = 0.9
"""The beginning of a name is as good as a letter that is wrong."""


def meant(wrong: str, known: Iterable[str]) -> str:
    """`: did you mean 'loss'?`, or nothing."""
    found = near(wrong, known)
    return f": did you mean {either(found)}?" if found else ""


def near(wrong: str, known: Iterable[str]) -> list[str]:
    from difflib import SequenceMatcher  # only who made a mistake waits for it

    wanted = wrong.casefold()
    matcher = SequenceMatcher(b=wanted)
    likeness: dict[str, float] = {}
    least = LIKE
    for name in known:
        folded = name.casefold()
        matcher.set_seq1(folded)
        if wanted and folded.startswith(wanted):
            ratio = max(matcher.ratio(), BEGINS)
        elif matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
            continue  # both are bounds: of many names, few are worth the long look
        else:
            ratio = matcher.ratio()
        likeness[name] = ratio
        least = max(least, ratio - CLOSE)
    best = sorted(likeness, key=lambda name: (-likeness[name], name))
    return [name for name in best if likeness[name] >= least][:MOST]


def either(names: list[str]) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}" if most else last
