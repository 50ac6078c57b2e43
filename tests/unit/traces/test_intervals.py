"""Unions, what is left of them, and self times, beside counting instant by instant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.traces import intervals
from runwatch.traces.account import HOST, Account, Lane
from runwatch.traces.intervals import Ints, Spans
from runwatch.traces.names import Work
from runwatch.traces.opening import Limits

QUICKLY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Pairs = Sequence[tuple[int, int]]
PAIRS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda each: (each[0], sum(each))),
    max_size=14,
)


def _in_order(pairs: Pairs) -> list[tuple[int, int]]:
    return sorted(pairs, key=lambda pair: (pair[0], -pair[1]))


def columns(pairs: Pairs) -> tuple[Ints, Ints]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def instants(pairs: Pairs) -> set[int]:
    return {instant for start, end in pairs for instant in range(start, end)}


def spans(pairs: Pairs) -> Spans:
    return intervals.union(*columns(pairs))


def covered(found: Spans) -> list[int]:
    """With repetitions, were there any."""
    pairs = zip(found.start.tolist(), found.end.tolist(), strict=True)
    return [instant for start, end in pairs for instant in range(start, end)]


@QUICKLY
@given(PAIRS)
def test_a_union_covers_each_instant_once(pairs: Pairs) -> None:
    found = spans(pairs)
    assert covered(found) == sorted(instants(pairs))
    assert found.total_ns == len(instants(pairs))
    assert (found.start[1:] > found.end[:-1]).all()


@QUICKLY
@given(PAIRS, PAIRS, st.integers(0, 40), st.integers(0, 40))
def test_what_is_common_what_is_left_and_what_is_inside(
    one: Pairs, other: Pairs, begin: int, size: int
) -> None:
    left, right = spans(one), spans(other)
    both, rest = instants(one) & instants(other), instants(one) - instants(other)
    assert covered(intervals.common(left, right)) == sorted(both)
    assert covered(intervals.without(left, right)) == sorted(rest)
    inside = instants(one) & set(range(begin, begin + size))
    assert covered(intervals.clip(left, begin, begin + size)) == sorted(inside)
    assert covered(intervals.together([left, right])) == sorted(instants(one) | instants(other))


def innermost(pairs: Pairs) -> list[int]:
    """Each instant belongs to the open event that comes last in order."""
    own = [0] * len(pairs)
    for instant in instants(pairs):
        own[max(i for i, (start, end) in enumerate(pairs) if start <= instant < end)] += 1
    return own


@QUICKLY
@given(PAIRS)
def test_self_times_of_events_that_overlap_anyhow(pairs: Pairs) -> None:
    ordered = _in_order(pairs)
    assert intervals.self_times(*columns(ordered)).tolist() == innermost(ordered)


def nested(depth: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Calls within calls, one after the other."""
    within = nested(depth - 1) if depth else st.just([])
    calls = st.tuples(st.integers(1, 5), st.integers(0, 3), within)
    return st.lists(calls, max_size=4).map(_laid_out)


def _laid_out(calls: list[tuple[int, int, list[tuple[int, int]]]]) -> list[tuple[int, int]]:
    found, now = [], 0
    for own, gap, children in calls:
        lasted = own + max((end for _, end in children), default=0)
        found.append((now, now + lasted))
        found += [(now + start, now + end) for start, end in children]
        now += lasted + gap
    return found


@QUICKLY
@given(nested(3))
def test_nested_self_times_are_those_of_a_walk(pairs: Pairs) -> None:
    ordered = _in_order(pairs)
    start, end = columns(ordered)
    if ordered:
        found = intervals.self_times(start, end)
        assert found.tolist() == innermost(ordered)
        assert intervals._walked_self_times(start, end).tolist() == found.tolist()


@QUICKLY
@given(PAIRS, st.integers(1, 5))
def test_pieces_of_a_lane_are_cut_where_nothing_is_open(pairs: Pairs, size: int) -> None:
    ordered = _in_order(pairs)
    start, end = columns(ordered)
    cuts = list(intervals.pieces(start, end, size)) if ordered else []
    assert [place for cut in cuts for place in range(*cut)] == list(range(len(ordered)))
    for _, finish in cuts[:-1]:
        assert end[:finish].max() <= start[finish]


@QUICKLY
@given(st.lists(PAIRS.map(_in_order), max_size=4), st.integers(1, 6))
def test_a_lane_may_come_in_any_pieces(lanes: list[Pairs], piece: int) -> None:
    whole, pieces = Account(Limits()), Account(Limits())
    for pairs in lanes:
        push(whole, pairs, 1000)
        push(pieces, pairs, piece)
    for column in ("count", "total_ns", "self_ns"):
        one, other = (getattr(a.totals[False], column) for a in (whole, pieces))
        assert np.trim_zeros(one, "b").tolist() == np.trim_zeros(other, "b").tolist()
    for first, kind in enumerate((Work.COMPUTE, Work.HOST)):
        chosen = [pair for pairs in lanes for pair in pairs[first::3]]
        assert covered(pieces.within((0, 200), HOST, kind)) == sorted(instants(chosen))


def push(account: Account, pairs: Pairs, piece: int) -> None:
    work = np.array([Work.COMPUTE, Work.HOST, Work.NONE])
    start, end = columns(pairs)
    lane = Lane(account, HOST)
    lane._patience = 1
    for begin in range(0, len(start), piece):
        cut = slice(begin, begin + piece)
        lane.push(np.arange(len(start))[cut] % 3, start[cut], end[cut], work)
    lane.close(work)


def test_thousands_of_levels_are_walked() -> None:
    levels = 5000
    start = np.arange(levels)
    found = intervals.self_times(start, 2 * levels - start)
    assert found.tolist() == [2] * levels


@QUICKLY
@given(nested(3), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), max_size=4))
def test_a_few_that_cross_disturb_only_those_around_them(
    pairs: Pairs, longer: list[tuple[int, int]]
) -> None:
    """As in a profile whose host events and driver calls are timed by two clocks."""
    changed = list(pairs)
    for at, more in longer:
        if changed:
            start, end = changed[at % len(changed)]
            changed[at % len(changed)] = start, end + more
    ordered = _in_order(changed)
    assert intervals.self_times(*columns(ordered)).tolist() == innermost(ordered)
