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
from typing import Final

from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.track import Piece

DRAINED: Final = 0.5
"""Of the longest waits around it: what comes close to them was a wait for all that was handed
over; shorter ones just let the program not run too far ahead."""
SHORT: Final = 0.35
"""Of the mean: a step so short only hands work over.  After a wait it shows that nothing was left
to wait for."""
NEAR: Final = 256
_AT_MOST: Final = 1.5
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


def busy_until(
    handed: Sequence[int], waited_until: Sequence[int], waits: Sequence[int], odd: Iterable[int]
) -> list[int]:
    """For each step: when the device was done with it.

    `handed` is when it was handed over, `waited_until` when the program went on after it, having
    waited for `waits`; `odd` are those that say nothing about the usual.
    """
    left_out = set(odd)
    windows = list(_windows(waits, left_out))
    lengths = [
        _step_ns(handed[first : last + 1], waited_until[last])
        for first, last in windows
    ]  # fmt: skip
    plain = sorted(
        (x, last + 1 - first)
        for x, (first, last) in zip(lengths, windows, strict=True)
        if not left_out.intersection(range(first, last + 1))
    )
    most = _AT_MOST * _middle(plain) if plain else None
    found: list[int] = []
    for x, (first, last) in zip(lengths, windows, strict=True):
        if most is not None:
            x = min(x, most)
        for at in range(first, last + 1):
            begun = max(found[-1], handed[at]) if found else handed[at]
            found.append(int(begun + x))
    return found


def _middle(weighted: Sequence[tuple[float, int]]) -> float:
    """The value that half of all steps lie below."""
    half = sum(weight for _, weight in weighted) / 2
    for value, weight in weighted:
        half -= weight
        if half <= 0:
            return value
    return weighted[-1][0]


def _windows(waits: Sequence[int], odd: set[int]) -> Iterable[tuple[int, int]]:
    """From one wait for the device to the next, inclusive."""
    if not waits:
        return
    plain = [0 if at in odd else wait for at, wait in enumerate(waits)]
    blocks = [max(plain[at : at + NEAR]) for at in range(0, len(plain), NEAR)]
    short = SHORT * sum(plain) / len(plain)
    least = SHORT * _weighty(plain)
    first = 0
    for at, wait in enumerate(waits):
        block = at // NEAR
        longest = max(blocks[max(0, block - 1) : block + 2])
        after = waits[at + 1 : at + 2]
        emptied = bool(after) and after[0] < short and wait >= least
        if emptied or wait >= DRAINED * longest or at == len(waits) - 1:
            yield first, at
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


def uncovered(pieces: Iterable[Piece], busy_ns: int) -> tuple[list[Piece], int]:
    """The same time, of which the device's is productive; and how much that is."""
    found: list[Piece] = []
    covered_ns = 0
    for start, end, spent in pieces:
        if start >= busy_ns or spent in _OWN_TIME or spent == Spent.PRODUCTIVE:
            found.append((start, end, spent))
            continue
        until = min(end, busy_ns)
        covered_ns += until - start
        found.append((start, until, Spent.PRODUCTIVE))
        if until < end:
            found.append((until, end, spent))
    return found, covered_ns
