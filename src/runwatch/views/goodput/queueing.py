"""How long a device was busy with the steps that it was handed, where it is waited for later.

A program that hands work over and goes on may wait for data, or save, while the device still works:
that costs nothing.  What is known is when each step was handed over and when the device was last
waited for.  Between two such waits the steps are taken to be equally long: with `h` the time at
which step i of n was handed over and `D` the end of the wait, the device was done at

    D = max over i of h[i] + (n - i + 1) * x

so that x, the time of one step, is the least of (D - h[i]) / (n - i + 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from runwatch.views.goodput.arrivals import KNOWN_NS, SEEN_NS, Arrived
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.track import Piece

DRAINED: Final = 0.5
"""Of the longest waits around it: what comes close to them was a wait for all that was handed
over; shorter ones just let the program not run too far ahead."""
SHORT: Final = 0.35
"""Of the mean: a step so short only hands work over.  Two after a wait show that nothing was left
to wait for; one may be by chance, where lengths vary."""
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
    at_least: list[int]
    """… at the earliest, as far as anything was recorded of it, else 0, …"""
    at_most: list[int]
    """… and at the latest, had it taken as long as the longest of the others."""
    drained: list[bool]
    """Whether it was waited for: then nothing was left to do."""
    is_known: bool
    """Whether anything says how long the last steps took, which nobody has waited for yet."""


class _Window(NamedTuple):
    """Steps up to one of which it is known when the device was done with it."""

    first: int
    last: int
    done_ns: int | None
    """None: nobody has waited for it yet."""
    arrived_ns: int = 0
    """When its value was there, if that was recorded."""


def busy_until(
    handed: Sequence[int],
    waited_until: Sequence[int],
    waits: Sequence[int],
    odd: Iterable[int],
    start: int = 0,
    there: Arrived | None = None,
) -> Busy:
    """When the device was done with each step.

    `handed` is when it was handed over, `waited_until` when the program went on after it, having
    waited for `waits`; `odd` are those that say nothing about the usual, nor do waits before
    `start`.  `there` is when values of it were, where that is known.
    """
    arrived = there.steps if there is not None else ()
    left_out = set(odd)
    found = Busy([*handed], [], [], [], [], False)
    waited_for = list(_windows(waits, left_out | set(range(start))))
    windows = list(_cut(waited_for, waited_until, arrived))
    lengths = _lengths(windows, handed, waited_until)
    is_plain = [
        window.last >= start and not left_out.intersection(range(window.first, window.last + 1))
        for window in windows
    ]
    plain = sorted(
        (x, window.last + 1 - window.first)
        for x, window, told in zip(lengths, windows, is_plain, strict=True)
        if told and window.done_ns is not None
    )
    usual = _middle(plain) if plain else None
    longest = min(plain[-1][0], _AT_MOST * usual) if usual is not None else 0.0
    for x, window, told in zip(lengths, windows, is_plain, strict=True):
        if usual is not None:
            x = _within_reason(x, window, told, usual)
        for at in range(window.first, window.last + 1):
            begun = max(found.until[-1], handed[at]) if at else handed[at]
            latest = max(found.at_most[-1], handed[at]) if at else handed[at]
            found.until.append(int(begun + x))
            found.at_least.append(0)
            found.at_most.append(int(latest + max(x, longest)))
            found.drained.append(window.done_ns is not None and at == window.last)
            if window.done_ns is not None:
                if at == window.last:  # and not a rounding error later
                    found.until[-1] = min(found.until[-1], max(window.done_ns, handed[at]))
                most = max(window.done_ns, window.arrived_ns)
                found.at_most[-1] = max(found.until[-1], min(found.at_most[-1], most))
            if there is not None and told and there.values[at]:
                found.at_least[-1] = there.values[at] - KNOWN_NS
                found.until[-1] = max(found.until[-1], found.at_least[-1])
                found.at_most[-1] = max(found.at_most[-1], found.until[-1])
        if window.arrived_ns and told:
            found.until[-1] = min(found.until[-1], window.arrived_ns)
            found.at_most[-1] = window.arrived_ns
    # Where every step waits, the device may be behind by as much as a program may be ahead.
    several = sum(weight for _, weight in plain if weight > 1)
    known = there is not None or 2 * several > sum(weight for _, weight in plain)
    return found._replace(is_known=known)


def _cut(
    windows: Sequence[tuple[int, int, bool]], waited_until: Sequence[int], arrived: Sequence[int]
) -> Iterator[_Window]:
    """Also where values arrived; those also say whether waits were what they seem."""
    if not any(arrived):
        for first, last, drained in windows:
            yield _Window(first, last, waited_until[last] if drained else None)
        return
    ends = [last for _, last, drained in windows if drained and arrived[last]]
    right = sum(arrived[at] - KNOWN_NS <= waited_until[at] for at in ends)
    begun = 0
    for _, last, drained in windows:
        drained = drained and 2 * right >= len(ends)
        for at in range(begun, last + 1):
            there = arrived[at]
            if there:
                waited = waited_until[at] if drained and at == last else 0
                known = there - KNOWN_NS <= waited <= there
                yield _Window(begun, at, waited if known else there - SEEN_NS, there)
                begun = at + 1
        if begun <= last and (drained or last == len(arrived) - 1):
            yield _Window(begun, last, waited_until[last] if drained else None)
            begun = last + 1


def _lengths(
    windows: Iterable[_Window], handed: Sequence[int], waited_until: Sequence[int]
) -> list[float]:
    """How long a step of each window took."""
    found: list[float] = []
    since = 0
    for first, last, done, _ in windows:
        begun = [max(ns, since) for ns in handed[first : last + 1]]
        found.append(_step_ns(begun, waited_until[last] if done is None else done))
        since = done or since
    return found


def _within_reason(x: float, window: _Window, told: bool, usual: float) -> float:
    if window.done_ns is None:
        return usual
    if not told:
        return min(x, _AT_MOST_IF_ODD * usual)
    return x if window.arrived_ns else min(x, _AT_MOST * usual)


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
        after = waits[at + 1 : at + 3]
        emptied = bool(after) and max(after) < short and wait >= least
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
    pieces: Iterable[Piece], busy_ns: int, at_least_ns: int = 0, at_most_ns: int = 0
) -> tuple[list[Piece], int]:
    """The same time, of which the device's is productive; and how much that is, or might be, less
    what is known."""
    found: list[Piece] = []
    doubt_ns = 0
    for start, end, spent in pieces:
        if spent in _OWN_TIME or spent == Spent.PRODUCTIVE:
            found.append((start, end, spent))
            continue
        until = max(start, min(end, busy_ns))
        doubt_ns += max(until, min(end, at_most_ns)) - max(start, min(until, at_least_ns))
        if start < until:
            found.append((start, until, Spent.PRODUCTIVE))
        if until < end:
            found.append((until, end, spent))
    return found, doubt_ns
