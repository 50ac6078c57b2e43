"""Arithmetic on intervals of time: arrays of starts and ends in nanoseconds, ends exclusive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_DEEPEST: Final = 2000
"""Up to this depth each level is one numpy pass; deeper events are walked one by one."""


class Spans(NamedTuple):
    """Disjoint, ascending, never touching: the result of `union`."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        return int((self.end - self.start).sum())


def no_spans() -> Spans:
    return Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Ints, end: Ints) -> Spans:
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return no_spans()
    if not is_ascending(start):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    lasts = np.append(begins[1:] - 1, len(start) - 1)
    return Spans(start[begins], reach[lasts])


def together(parts: list[Spans]) -> Spans:
    parts = [part for part in parts if len(part.start)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return no_spans()
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    # The parts of one thread are often already in order: then no union is needed.
    in_turn = all(one.end[-1] < other.start[0] for one, other in pairwise(parts))
    return Spans(start, end) if in_turn else union(start, end)


def clip(spans: Spans, begin: int, finish: int) -> Spans:
    """The part between two moments.  Copies only if a span crosses an edge."""
    first = int(np.searchsorted(spans.end, begin, side="right"))
    after = int(np.searchsorted(spans.start, finish))
    if after <= first or finish <= begin:
        return no_spans()
    start, end = spans.start[first:after], spans.end[first:after]
    if start[0] < begin:
        start = np.append(begin, start[1:])
    if end[-1] > finish:
        end = np.append(end[:-1], finish)
    return Spans(start, end)


def without(spans: Spans, taken: Spans) -> Spans:
    """`spans` minus `taken`: the gaps of `taken`, cut by `spans`."""
    if not len(taken.start) or not len(spans.start):
        return spans
    lowest = np.int64(min(spans.start[0], taken.start[0]))
    highest = np.int64(max(spans.end[-1], taken.end[-1]))
    gaps = Spans(np.append(lowest, taken.end), np.append(taken.start, highest))
    return common(spans, gaps)


def common(one: Spans, other: Spans) -> Spans:
    """The intersection.  Two spans that meet do so where the later one begins."""
    if not len(one.start) or not len(other.start):
        return no_spans()
    pieces = (_cut(one, other, "right"), _cut(other, one, "left"))
    start = np.concatenate([piece.start for piece in pieces])
    end = np.concatenate([piece.end for piece in pieces])
    order = np.argsort(start, kind="stable")
    return Spans(start[order], end[order])


def _cut(later: Spans, around: Spans, side: str) -> Spans:
    """For each span of `later`: its part inside the span of `around` in which it begins."""
    at = np.searchsorted(around.start, later.start, side="right" if side == "right" else "left") - 1
    inside = at >= 0
    start, end, at = later.start[inside], later.end[inside], at[inside]
    end = np.minimum(end, around.end[at])
    keep = end > start
    return Spans(start[keep], end[keep])


def is_ascending(values: Ints) -> bool:
    return len(values) < 2 or bool((values[1:] >= values[:-1]).all())


def nesting_order(start: Ints, end: Ints) -> Ints | None:
    """The order in which outer events come before inner ones; None if they are already in it."""
    if len(start) < 2:
        return None
    ascending = start[1:] > start[:-1]
    ascending |= (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    return None if ascending.all() else np.lexsort((-end, start))


def quiet_point(start: Ints, end: Ints) -> int:
    """How many of these ordered events have surely ended before the next one begins."""
    if len(start) < 2:
        return 0
    reach = np.maximum.accumulate(end)
    cuts = np.flatnonzero(start[1:] >= reach[:-1])
    return int(cuts[-1]) + 1 if len(cuts) else 0


def pieces(start: Ints, end: Ints, size: int) -> Iterator[tuple[int, int]]:
    """Cut ordered events into pieces of about `size`, only where no event is open."""
    reach = np.maximum.accumulate(end)
    cuts = np.flatnonzero(start[1:] >= reach[:-1]) + 1
    begin = 0
    while len(start) - begin > size:
        after = int(np.searchsorted(cuts, begin + size))
        if after == len(cuts):
            break
        yield begin, int(cuts[after])
        begin = int(cuts[after])
    yield begin, len(start)


def self_times(start: Ints, end: Ints) -> Ints:
    """How long each of one thread's events, in nesting order, was the innermost open one.

    If events overlap without nesting, the one that began last counts as the innermost.
    """
    own = np.zeros(len(start), np.int64)
    lasting = np.flatnonzero(end > start)
    if len(lasting):
        own[lasting] = _self_times(start[lasting], end[lasting])
    return own


def _self_times(start: Ints, end: Ints) -> Ints:
    if (start[1:] >= end[:-1]).all():  # one after the other, as on a stream
        return end - start
    # Depth: the events that began before it, minus those of them that have ended.
    depth = np.arange(len(start)) - np.searchsorted(np.sort(end), start, side="right")
    if int(depth.max()) > _DEEPEST:
        return _walked_self_times(start, end)
    parent = _parents(depth)
    own = end - start
    inner = np.flatnonzero(parent >= 0)
    own -= np.bincount(parent[inner], own[inner], len(own)).astype(np.int64)
    crossing = inner[end[inner] > end[parent[inner]]]
    if len(crossing):
        # Some profilers mix two clocks, so events cross.  Only those around a crossing are walked.
        near = _around(crossing, parent, start, end)
        own[near] = _walked_self_times(start[near], end[near])
    return own


def _parents(depth: Ints) -> Ints:
    """For each event: the last one before it that is one level up; -1 at the top level."""
    parent = np.full(len(depth), -1)
    by_depth = np.argsort(depth.astype(np.int16), kind="stable")
    edges = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    for level in range(1, len(edges) - 1):
        outer = by_depth[edges[level - 1] : edges[level]]
        inner = by_depth[edges[level] : edges[level + 1]]
        parent[inner] = outer[np.searchsorted(outer, inner) - 1]
    return parent


def _around(crossing: Ints, parent: Ints, start: Ints, end: Ints) -> Ints:
    """All events in the smallest event that contains one of `crossing` whole, including it.  If
    there is none: all events between two places where no event is open."""
    holder = parent[crossing]
    while (higher := (holder >= 0) & (end[holder] < end[crossing])).any():
        holder = np.where(higher, parent[holder], holder)
    held = holder[holder >= 0]
    cuts = np.flatnonzero(start[1:] >= np.maximum.accumulate(end)[:-1]) + 1
    at = np.searchsorted(cuts, crossing[holder < 0], side="right")
    begin = np.concatenate([held, np.append(0, cuts)[at]])
    finish = np.concatenate([np.searchsorted(start, end[held]), np.append(cuts, len(start))[at]])
    size = len(start) + 1
    depth = np.bincount(begin, minlength=size) - np.bincount(finish, minlength=size)
    return np.flatnonzero(np.cumsum(depth)[:-1])


def _walked_self_times(start: Ints, end: Ints) -> Ints:
    """Event by event: the time between two beginnings goes to the innermost open event."""
    begins, ends = start.tolist(), end.tolist()
    own = [0] * len(begins)
    opened: list[int] = []
    now = begins[0]
    for event, begin in enumerate([*begins, max(ends)]):
        while opened and now < begin:
            innermost = opened[-1]
            stop = ends[innermost]
            if stop > begin:
                own[innermost] += begin - now
                break
            if stop > now:
                own[innermost] += stop - now
                now = stop
            opened.pop()
        opened.append(event)
        now = begin
    return np.array(own, np.int64)
