"""Comparisons of ranks that several rules make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runwatch.views.diagnosis.evidence import Seat
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Group, Scene

ENOUGH: Final = 3
"""Fewer ranks are no majority against one."""
ROOTED: Final = frozenset(
    ("broadcast", "scatter", "gather", "reduce", "broadcast_object_list", "gather_object",
     "scatter_object_list", "monitored_barrier", "broadcast_one_to_all")
)  # fmt: skip
"""Collectives in which one rank has a part of its own: it may be past it while others wait."""


def is_majority(scene: Scene, odd: int) -> bool:
    """Whether the ranks that agree clearly outnumber the `odd` ones, and every rank was seen."""
    others = len(scene.seen) - odd
    return len(scene.seen) >= ENOUGH and odd * 2 <= others and not scene.unseen and not scene.gone


def must_be_together(most: Group, odd: Sequence[Seat]) -> bool:
    """False where one rank has a part of its own: then being elsewhere proves nothing."""
    wait = most.first.waits_for
    if wait.kind == "peer" or wait.what in ROOTED:
        return False
    return all(seat.waits_for.kind != "peer" for seat in odd)


def ahead_or_behind(scene: Scene, odd: Sequence[Seat]) -> tuple[str, ...]:
    """In words: a rank that is ahead has skipped a collective, one that is behind is late."""
    others = [seat for seat in scene.seen if seat not in odd]
    orders = {_order(seat, other) for seat in odd for other in others[:1]}
    if orders == {1}:
        return (f"{ranks_in_words(s.rank for s in odd)} came further than the others: it seems "
                "to have skipped the collective in which they wait",)  # fmt: skip
    if orders == {-1}:
        return (f"{ranks_in_words(s.rank for s in odd)} did not come as far as the others",)
    return ()


def _order(one: Seat, other: Seat) -> int:
    """1 if `one` is further on in the program than `other`, -1 if less far, 0 if not known."""
    if one.step is not None and other.step is not None and one.step != other.step:
        return 1 if one.step > other.step else -1
    for mine, theirs in zip(_path(one), _path(other), strict=False):
        if mine[:2] != theirs[:2]:
            return 0
        if mine[2] != theirs[2]:
            return 1 if mine[2] > theirs[2] else -1
    return 0


def _path(seat: Seat) -> list[tuple[str, str, int]]:
    """The calls that lead to where a rank is, outermost first."""
    frames = () if seat.thread is None else seat.thread.frames
    return [(f.name, f.file, f.line) for f in reversed(frames) if not f.native]
