"""Large event bodies, stored in several rows.

The engine works on 2,048 rows at a time and holds all their texts at once: with bodies of half a
megabyte that is a gigabyte.  Questions about such events failed, and so did compaction.  So no row
holds more than a piece of a body.  The rows of one event have the same journal and place.  A piece
begins with its number and how many there are.  A body is JSON and begins with a brace, so no body
looks like a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

LONGEST: Final = 16 << 10
"""Characters of a body in one row; a run has few larger bodies."""
MOST: Final = 1 << 8
"""Most pieces of a body: half a million characters, each up to six when it is encoded."""
MARK: Final = "\x1e"
IS_WHOLE: Final = "starts_with(body, '{')"
"""SQL: the body is in one row."""

Row = tuple[Any, ...]


def cut(body: str) -> list[str]:
    if len(body) <= LONGEST:
        return [body]
    texts = [body[at : at + LONGEST] for at in range(0, len(body), LONGEST)]
    return [f"{MARK}{number}/{len(texts)}/{text}" for number, text in enumerate(texts)]


def whole(rows: Iterable[Row], names: Sequence[str]) -> Iterator[Row]:
    """The events of these rows.  The rows of one event must follow each other, in any order.

    An event with a missing piece (the query ended in the middle of it) is left out.
    """
    journal, place, at = names.index("journal"), names.index("place"), names.index("body")
    texts: dict[int, str] = {}
    key: tuple[Any, Any] | None = None
    for row in rows:
        body = row[at]
        if not body.startswith(MARK):
            yield row
            continue
        number, count, text = body[1:].split("/", 2)
        if key != (row[journal], row[place]):
            key, texts = (row[journal], row[place]), {}
        texts[int(number)] = text
        if len(texts) == int(count):
            yield (*row[:at], "".join(texts[n] for n in range(len(texts))), *row[at + 1 :])
