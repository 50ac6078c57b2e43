"""Large bodies of events, stored in several rows.

The engine works on 2,048 rows at a time and holds all their texts at once: of bodies of half a
megabyte that is a gigabyte, and no question about such events was answered any more, nor were they
ever put into files.  So no row has more than a piece.  The rows of one event have the same journal
and place; what a piece is, and of how many, stands before its text.  A body is JSON and begins with
a brace, so nothing else looks like a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

LONGEST: Final = 16 << 10
"""Characters of a body in one row; of those that are larger a run has few."""
MOST: Final = 1 << 8
"""Pieces of a body: it has half a million characters, and up to six for each when it is encoded."""
MARK: Final = "\x1e"
IS_WHOLE: Final = "starts_with(body, '{')"
"""As SQL."""

Row = tuple[Any, ...]


def cut(body: str) -> list[str]:
    if len(body) <= LONGEST:
        return [body]
    texts = [body[at : at + LONGEST] for at in range(0, len(body), LONGEST)]
    return [f"{MARK}{number}/{len(texts)}/{text}" for number, text in enumerate(texts)]


def whole(rows: Iterable[Row], names: Sequence[str]) -> Iterator[Row]:
    """The events of rows in which those of one event follow each other, in whatever order.

    One of which a piece is missing, because what was asked for ended there, is left out.
    """
    journal, place, at = names.index("journal"), names.index("place"), names.index("body")
    known: dict[int, str] = {}
    key: tuple[Any, Any] | None = None
    for row in rows:
        body = row[at]
        if not body.startswith(MARK):
            yield row
            continue
        number, count, text = body[1:].split("/", 2)
        if key != (row[journal], row[place]):
            key, known = (row[journal], row[place]), {}
        known[int(number)] = text
        if len(known) == int(count):
            yield (*row[:at], "".join(known[n] for n in range(len(known))), *row[at + 1 :])
