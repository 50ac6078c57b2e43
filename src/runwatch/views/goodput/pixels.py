"""An account drawn on a number of pixels, without losing a nanosecond of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from runwatch.views.goodput.account import Goodput

Sums = dict[str, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time, and the class that has most of it."""

    start_ns: int
    end_ns: int
    name: str
    spent_ns: Sums
    """By class; the sum is exactly the length of the stretch."""


@dataclass(frozen=True, slots=True)
class Drawn:
    exact: bool
    """True: the pieces are the account's own intervals.  False: each lasts one or more pixels."""
    pieces: list[Piece]


def drawn(goodput: Goodput, start_ns: int, end_ns: int, pixels: int) -> Drawn:
    """The part of [start_ns, end_ns) that is in the run, in about `pixels` pieces at most.

    Without gap or overlap; neighbours of one class are one piece.
    """
    start_ns, end_ns = max(start_ns, goodput.start_ns), min(end_ns, goodput.end_ns)
    if start_ns >= end_ns:
        return Drawn(True, [])
    own = list(islice(goodput.intervals(start_ns, end_ns), pixels + 1))
    if len(own) <= pixels:
        return Drawn(True, [Piece(a, b, name, {name: b - a}) for a, b, name in own])
    edges = sorted({start_ns + (end_ns - start_ns) * i // pixels for i in range(pixels + 1)})
    return Drawn(False, list(_joined(_pixels(goodput, edges))))


def _pixels(goodput: Goodput, edges: Sequence[int]) -> Iterator[Piece]:
    for part in goodput.each(edges):
        spent = {name: ns for name, ns in part.spent_ns.items() if ns}
        yield Piece(part.start_ns, part.end_ns, max(spent, key=spent.__getitem__), spent)


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Joins neighbours that have one and the same class.  Pieces with several classes stay
    single."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and held.spent_ns.keys() == piece.spent_ns.keys() == {held.name}:
            held = Piece(
                held.start_ns, piece.end_ns, held.name, _sum(held.spent_ns, piece.spent_ns)
            )
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


def _sum(one: Sums, other: Sums) -> Sums:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one | other}
