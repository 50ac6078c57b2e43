"""How long a device was busy with the steps handed to it, where the program waits for it later.

A program that hands work over and goes on may wait for data, or save, while the device still works:
that costs nothing.  Known are the time at which each step was handed over and the time at which the
program last waited for the device.  Between two such waits the steps count as equally long: with
`h` the time at which step i of n was handed over and `D` the end of the wait, the device was done
at

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
"""As a share of the longest waits nearby.  A wait above it was for all work handed over; a shorter
wait only kept the program from running too far ahead."""
SHORT: Final = 0.35
"""As a share of the mean.  A step below it only hands work over.  Two such steps after a wait show
that no work was left; a single one may be chance, where lengths vary."""
_EMPTIED: Final = 0.3
"""As a share of the wait in which most waiting is done.  A shorter wait is a slow hand-over."""
NEAR: Final = 256
_AT_MOST: Final = 3.0
_AT_MOST_IF_ODD: Final = 1.5
"""As multiples of the usual step: a device that hangs does not work."""
_OWN_TIME: Final = frozenset(
    (
        Spent.ACCELERATOR_INIT,
        Spent.TRAINING_PREPARATION,
        Spent.ELASTIC_SLICE_DOWN,
        Spent.ELASTIC_SCALE_UP,
        Spent.ELASTIC_REINITIALIZATION,
    )
)
"""Earlier work of the device does not go on during these."""


class Busy(NamedTuple):
    """When a device was busy with the steps handed to it."""

    handed: list[int]
    """When each step was handed over."""
    until: list[int]
    """When the device was done with the step."""
    at_least: list[int]
    """The earliest end that records allow; 0 where nothing was recorded."""
    at_most: list[int]
    """The latest end: as if the step had taken as long as the longest of the others."""
    drained: list[bool]
    """Whether the program waited for the step: then no work was left."""
    is_known: bool
    """Whether anything shows how long the last steps took, which the program has not waited for
    yet."""


class _Window(NamedTuple):
    """Consecutive steps; the end of the last one on the device is known."""

    first: int
    last: int
    done_ns: int | None
    """None: the program has not waited for it yet."""
    arrived_ns: int = 0
    """When the last step's value arrived, if that was recorded."""


def busy_until(
    handed: Sequence[int],
    waited_until: Sequence[int],
    waits: Sequence[int],
    odd: Iterable[int],
    start: int = 0,
    there: Arrived | None = None,
) -> Busy:
    """When the device was done with each step.

    `handed` is when each step was handed over.  `waited_until` is when the program went on after
    it, having waited for `waits`.  `odd` steps say nothing about the usual, nor do waits before
    `start`. `there` is when values of the steps arrived, where that is known.
    """
    arrived = there.steps if there is not None else ()
    left_out = set(odd)
    busy = Busy([*handed], [], [], [], [], False)
    waited_for = list(_windows(waits, left_out | set(range(start))))
    windows = list(_cut(waited_for, waited_until, arrived))
    lengths = _lengths(windows, handed, waited_until)
    is_plain = [
        window.last >= start and not left_out.intersection(range(window.first, window.last + 1))
        for window in windows
    ]
    plain = sorted(
        (x, window.last + 1 - window.first)
        for x, window, plain_window in zip(lengths, windows, is_plain, strict=True)
        if plain_window and window.done_ns is not None
    )
    usual = _middle(plain) if plain else None
    longest = min(plain[-1][0], _AT_MOST * usual) if usual is not None else 0.0
    for x, window, plain_window in zip(lengths, windows, is_plain, strict=True):
        if usual is not None:
            x = _within_reason(x, window, plain_window, usual)
        for at in range(window.first, window.last + 1):
            begun = max(busy.until[-1], handed[at]) if at else handed[at]
            latest = max(busy.at_most[-1], handed[at]) if at else handed[at]
            busy.until.append(int(begun + x))
            busy.at_least.append(0)
            busy.at_most.append(int(latest + max(x, longest)))
            busy.drained.append(window.done_ns is not None and at == window.last)
            if window.done_ns is not None:
                if at == window.last:  # and not a rounding error later
                    busy.until[-1] = min(busy.until[-1], max(window.done_ns, handed[at]))
                most = max(window.done_ns, window.arrived_ns)
                busy.at_most[-1] = max(busy.until[-1], min(busy.at_most[-1], most))
            if there is not None and plain_window and there.values[at]:
                busy.at_least[-1] = there.values[at] - KNOWN_NS
                busy.until[-1] = max(busy.until[-1], busy.at_least[-1])
                busy.at_most[-1] = max(busy.at_most[-1], busy.until[-1])
        if window.arrived_ns and plain_window:
            busy.until[-1] = min(busy.until[-1], window.arrived_ns)
            busy.at_most[-1] = window.arrived_ns
    # Where every step waits, the device may lag by as much as a program may run ahead.
    several = sum(weight for _, weight in plain if weight > 1)
    known = there is not None or 2 * several > sum(weight for _, weight in plain)
    return busy._replace(is_known=known)


def _cut(
    windows: Sequence[tuple[int, int, bool]], waited_until: Sequence[int], arrived: Sequence[int]
) -> Iterator[_Window]:
    """Also cuts the windows where values arrived.  Arrivals also show whether the waits really were
    waits for the device."""
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
    lengths: list[float] = []
    since = 0
    for first, last, done, _ in windows:
        begun = [max(ns, since) for ns in handed[first : last + 1]]
        lengths.append(_step_ns(begun, waited_until[last] if done is None else done))
        since = done or since
    return lengths


def _within_reason(x: float, window: _Window, plain_window: bool, usual: float) -> float:
    if window.done_ns is None:
        return usual
    if not plain_window:
        return min(x, _AT_MOST_IF_ODD * usual)
    return x if window.arrived_ns else min(x, _AT_MOST * usual)


def _middle(weighted: Sequence[tuple[float, int]]) -> float:
    """The weighted median."""
    half = sum(weight for _, weight in weighted) / 2
    for value, weight in weighted:
        half -= weight
        if half <= 0:
            return value
    return weighted[-1][0]


def _windows(waits: Sequence[int], odd: set[int]) -> Iterable[tuple[int, int, bool]]:
    """(First step, last step, whether the program waited): from one wait for the device to the
    next."""
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
    """The length of the wait in which half of all waiting is done.  Where few steps wait and most
    just hand over, however unevenly, this is a real wait."""
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
    """The same pieces, with the device's busy time as productive; and how much of that time is a
    guess."""
    split: list[Piece] = []
    doubt_ns = 0
    for start, end, spent in pieces:
        if spent in _OWN_TIME or spent == Spent.PRODUCTIVE:
            split.append((start, end, spent))
            continue
        until = max(start, min(end, busy_ns))
        doubt_ns += max(until, min(end, at_most_ns)) - max(start, min(until, at_least_ns))
        if start < until:
            split.append((start, until, Spent.PRODUCTIVE))
        if until < end:
            split.append((until, end, spent))
    return split, doubt_ns
