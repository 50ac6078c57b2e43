"""An account on few pixels: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runwatch.views.goodput.account import Goodput, Stretch
from runwatch.views.goodput.classes import ClassNames, Spent
from runwatch.views.goodput.pixels import Drawn, drawn
from runwatch.views.goodput.timeline import Timeline

CLASSES = [Spent.PRODUCTIVE, Spent.DATA_LOADING, Spent.CHECKPOINT_SAVE, Spent.STALL]


@st.composite
def accounts(draw: st.DrawFn) -> Goodput:
    """A few attempts one after the other, some of their work done again."""
    at = start = draw(st.integers(-1000, 1000))
    stretches = []
    for _ in range(draw(st.integers(1, 4))):
        timeline, begin = Timeline(at), at
        for length, spent in draw(
            st.lists(st.tuples(st.integers(1, 60), st.sampled_from(CLASSES)), min_size=1)
        ):
            at += length
            timeline.append(at, spent)
        stretches.append(Stretch(timeline, begin, at))
    edges = sorted(draw(st.lists(st.integers(start, at), max_size=6, unique=True)))
    return Goodput(
        names=ClassNames(),
        start_ns=start,
        end_ns=at,
        live=False,
        inferred_ns=0,
        attempts=(),
        disruptions=(),
        ranks=(),
        steps=0,
        max_productive_step=None,
        ideal_step_ns=None,
        _stretches=stretches,
        _redone=list(zip(edges[::2], edges[1::2], strict=False)),
        _starts=[stretch.start_ns for stretch in stretches],
    )


def brute(goodput: Goodput, start: int, end: int) -> dict[str, int]:
    """Nanosecond by nanosecond, from the intervals."""
    spent: dict[str, int] = {}
    for a, b, name in goodput.intervals():
        shared = min(b, end) - max(a, start)
        if shared > 0:
            spent[name] = spent.get(name, 0) + shared
    return spent


def check(goodput: Goodput, found: Drawn, start: int, end: int) -> None:
    start, end = max(start, goodput.start_ns), min(end, goodput.end_ns)
    pieces = found.pieces
    if start >= end:
        assert pieces == []
        return
    assert (pieces[0].start_ns, pieces[-1].end_ns) == (start, end)
    assert all(a.end_ns == b.start_ns for a, b in pairwise(pieces))
    alone = [set(piece.spent_ns) == {piece.name} for piece in pieces]
    joined = [a.name != b.name for a, b in pairwise(pieces)]
    assert all(j or not (a and b) for j, (a, b) in zip(joined, pairwise(alone), strict=True))
    for piece in pieces:
        assert piece.spent_ns == brute(goodput, piece.start_ns, piece.end_ns)
        assert sum(piece.spent_ns.values()) == piece.end_ns - piece.start_ns


@given(accounts(), st.integers(-1200, 2000), st.integers(0, 1500), st.integers(1, 40))
def test_every_piece_says_exactly_what_is_in_it(
    goodput: Goodput, start: int, length: int, pixels: int
) -> None:
    found = drawn(goodput, start, start + length, pixels)
    check(goodput, found, start, start + length)
    assert len(found.pieces) <= pixels
    if found.exact:
        assert all(set(piece.spent_ns) == {piece.name} for piece in found.pieces)


@given(accounts(), st.integers(1, 40))
def test_of_what_is_merged_the_class_with_most_of_a_pixel_is_shown(
    goodput: Goodput, pixels: int
) -> None:
    found = drawn(goodput, goodput.start_ns, goodput.end_ns, pixels)
    if found.exact:
        return
    total = goodput.end_ns - goodput.start_ns
    edges = [goodput.start_ns + total * i // pixels for i in range(pixels + 1)]
    for a, b in pairwise(edges):
        if a < b:
            spent = brute(goodput, a, b)
            (shown,) = [p.name for p in found.pieces if p.start_ns <= a and b <= p.end_ns]
            assert spent[shown] == max(spent.values())


@given(accounts(), st.lists(st.integers(-1200, 2000), min_size=2))
def test_each_is_the_account_of_each(goodput: Goodput, at: list[int]) -> None:
    edges = sorted(min(max(t, goodput.start_ns), goodput.end_ns) for t in at)
    expected = [goodput.account(a, b) for a, b in pairwise(edges)]
    assert list(goodput.each(edges)) == expected


@given(accounts(), st.integers(-1200, 2000), st.integers(0, 1500), st.sampled_from(CLASSES[1:]))
def test_a_rare_class_is_found_without_the_others(
    goodput: Goodput, start: int, length: int, spent: Spent
) -> None:
    found = list(goodput.of_class(spent, start, start + length))
    inside = [
        (a, b)
        for stretch in goodput._stretches
        for a, b, each in stretch.timeline.intervals(start, start + length)
        if each == spent and a < b
    ]
    assert [(a, b) for a, b, _ in found] == inside
    assert {each for _, _, each in found} <= {spent}
