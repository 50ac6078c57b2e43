"""How long a device was busy with the steps that it was handed, where it is waited for later.

A program that hands work over and goes on may wait for data, or save, while the device still works:
that costs nothing.  What is known is when each step was handed over and when the device was last
waited for.  Between two such waits the steps are taken to be equally long: with `h` the time at
which step i of n was handed over and `D` the end of the wait, the device was done at

    D = max over i of h[i] + (n - i + 1) * x

so that x, the time of one step, is the least of (D - h[i]) / (n - i + 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.track import Piece

DRAINED: Final = 0.5
"""Of the longest waits around it: what comes close to them was a wait for all that was handed
over; shorter ones just let the program not run too far ahead."""
SHORT: Final = 0.35
"""Of the mean: a step so short only hands work over.  After a wait it shows that nothing was left
to wait for."""
_EMPTIED: Final = 0.3
"""Of the wait in which most waiting is done: a shorter one is a hand-over that took its time."""
NEAR: Final = 256
_AT_MOST: Final = 3.0
_AT_MOST_IF_ODD: Final = 1.5
"""Times what steps usually take: a device that hangs does not work."""
_OWN_TIME: Final = frozenset(
    (
        Spent.ACCELERATOR_INIT,
        Spent.TRAINING_PREPARATION,
        Spent.ELASTIC_SLICE_DOWN,
        Spent.ELASTIC_SCALE_UP,
        Spent.ELASTIC_REINITIALIZATION,
    )
)
"""Nothing that was handed over before is thought to go on in these."""


class Busy(NamedTuple):
    """When a device was at the steps that it was handed."""

    handed: list[int]
    """When each step was handed over …"""
    until: list[int]
    """… when the device was done with it, …"""
    at_most: list[int]
    """… and with it at the latest, had it taken as long as the longest of the others."""
    drained: list[bool]
    """Whether it was waited for: then nothing was left to do."""
    is_known: bool
    """Whether any wait says how long the last steps took, which nobody has waited for yet."""


def busy_until(
    handed: Sequence[int],
    waited_until: Sequence[int],
    waits: Sequence[int],
    odd: Iterable[int],
    start: int = 0,
) -> Busy:
    """When the device was done with each step.

    `handed` is when it was handed over, `waited_until` when the program went on after it, having
    waited for `waits`; `odd` are those that say nothing about the usual, nor do waits before
    `start`.
    """
    left_out = set(odd)
    found = Busy([*handed], [], [], [], False)
    windows = list(_windows(waits, left_out | set(range(start))))
    lengths = [
        _step_ns(handed[first : last + 1], waited_until[last])
        for first, last, _ in windows
    ]  # fmt: skip
    is_plain = [
        last >= start and not left_out.intersection(range(first, last + 1))
        for first, last, _ in windows
    ]
    plain = sorted(
        (x, last + 1 - first)
        for x, (first, last, drained), told in zip(lengths, windows, is_plain, strict=True)
        if told and drained
    )
    usual = _middle(plain) if plain else None
    longest = min(plain[-1][0], _AT_MOST * usual) if usual is not None else 0.0
    for x, (first, last, drained), told in zip(lengths, windows, is_plain, strict=True):
        if usual is not None:
            x = min(x, (_AT_MOST if told else _AT_MOST_IF_ODD) * usual) if drained else usual
        for at in range(first, last + 1):
            begun = max(found.until[-1], handed[at]) if at else handed[at]
            found.until.append(int(begun + x))
            begun = max(found.at_most[-1], handed[at]) if at else handed[at]
            found.at_most.append(int(begun + max(x, longest)))
            found.drained.append(drained and at == last)
            if drained:
                found.at_most[-1] = max(found.until[-1], min(found.at_most[-1], waited_until[last]))
    # Where every step waits, the device may be behind by as much as a program may be ahead.
    waited_for = sum(weight for _, weight in plain if weight > 1)
    return found._replace(is_known=2 * waited_for > sum(weight for _, weight in plain))


def _middle(weighted: Sequence[tuple[float, int]]) -> float:
    """The value that half of all steps lie below."""
    half = sum(weight for _, weight in weighted) / 2
    for value, weight in weighted:
        half -= weight
        if half <= 0:
            return value
    return weighted[-1][0]


def _windows(waits: Sequence[int], odd: set[int]) -> Iterable[tuple[int, int, bool]]:
    """From one wait for the device to the next, inclusive; False: nobody has waited yet."""
    if not waits:
        return
    plain = [0 if at in odd else wait for at, wait in enumerate(waits)]
    blocks = [max(plain[at : at + NEAR]) for at in range(0, len(plain), NEAR)]
    short = SHORT * sum(plain) / len(plain)
    least = _EMPTIED * _weighty(plain)
    first = 0
    for at, wait in enumerate(waits):
        block = at // NEAR
        longest = max(blocks[max(0, block - 1) : block + 2])
        after = waits[at + 1 : at + 2]
        emptied = bool(after) and after[0] < short and wait >= least
        drained = emptied or wait >= DRAINED * longest
        if drained or at == len(waits) - 1:
            yield first, at, drained
            first = at + 1


def _weighty(waits: Sequence[int]) -> int:
    """How long the wait is in which half of all waiting is done: where few steps wait and most just
    hand over, however unevenly, it is a wait and no hand-over."""
    half = sum(waits) / 2
    for wait in sorted(waits):
        half -= wait
        if half <= 0:
            return wait
    return 0


def _step_ns(handed: Sequence[int], done_ns: int) -> float:
    count = len(handed)
    return max(0.0, min((done_ns - h) / (count - at) for at, h in enumerate(handed)))


def uncovered(
    pieces: Iterable[Piece], busy_ns: int, at_most_ns: int = 0
) -> tuple[list[Piece], int]:
    """The same time, of which the device's is productive; and how much that is, or might be."""
    found: list[Piece] = []
    doubt_ns = 0
    for start, end, spent in pieces:
        if spent in _OWN_TIME or spent == Spent.PRODUCTIVE:
            found.append((start, end, spent))
            continue
        until = max(start, min(end, busy_ns))
        doubt_ns += max(until, min(end, at_most_ns)) - start
        if start < until:
            found.append((start, until, Spent.PRODUCTIVE))
        if until < end:
            found.append((until, end, spent))
    return found, doubt_ns
