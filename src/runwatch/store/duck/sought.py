"""Events that may hold a text, found by the engine in the JSON of their bodies.

To decode a body costs a hundred times as much as to look at its JSON.  What is found here may be
too much, since a text can stand in a name or beside the field that is meant, but never too little.
A body is written by `json.dumps`: all of it is ASCII, and each character of a text has one form
there, whatever stands beside it.  So a text that is in the body is there form by form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from runwatch.store.duck import pieces
from runwatch.store.store import Sought

LONGEST: Final = 64
"""Only so many characters of a text are looked for: what has all of it has these."""
_LAST_CASED: Final = 0x1FFFF

Forms = Sequence[str]
"""How one character may be written."""


def condition(sought: Sought, parameters: dict[str, Any]) -> str:
    """As SQL.  Adds to the query's parameters."""
    words = [_forms(sought.text[:LONGEST], sought.any_case)]
    words += [_forms(f'"{name}"', any_case=False, quoted=True) for name in sought.or_fields]
    parameters["sought"] = "|".join("".join(map(_one_of, word)) for word in words)
    parameters["sought_end"] = f"(?:{'|'.join(map(_begun, words))})$"
    parameters["sought_in"] = list(sought.kinds)
    return (
        "(NOT kind = ANY($sought_in) OR regexp_matches(body, $sought)"
        f" OR (NOT {pieces.IS_WHOLE} AND regexp_matches(body, $sought_end)))"
    )


def _forms(text: str, any_case: bool, *, quoted: bool = False) -> list[Forms]:
    """`quoted`: the text is JSON already."""
    if quoted:
        return [[character] for character in text]
    likes = _like if any_case else _itself
    return [[json.dumps(like)[1:-1] for like in likes(character)] for character in text]


def _itself(character: str) -> str:
    return character


def _like(character: str) -> str:
    """All characters that `re` takes for this one, if it does not care for the case."""
    return "".join({character, *re.findall(re.escape(character), _cased(), re.IGNORECASE)})


@cache
def _cased() -> str:
    """All characters that have a case."""
    every = map(chr, range(_LAST_CASED + 1))
    return "".join(each for each in every if each.lower() != each or each.upper() != each)


def _one_of(forms: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, sorted(forms)))})"


def _begun(word: Sequence[Forms]) -> str:
    """A beginning of the word, where a large body was cut into pieces.  The rest is in the next."""
    pattern = ""
    for forms in reversed(word):
        cut = {form[:length] for form in forms for length in range(1, len(form))}
        whole = _one_of(forms) + (f"(?:{pattern})?" if pattern else "")
        pattern = f"{_one_of(cut)}|{whole}" if cut else whole
    return pattern
