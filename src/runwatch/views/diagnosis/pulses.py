"""How much a process ran between two looks at its stacks.

Each look has a pulse, taken before and after it (`capture/pulse.py`): how often each thread came
onto a core so far, and for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from runwatch.record.stacks import Beat, Stacks

AT_REST_PER_SECOND: Final = 0.7
"""A thread that wakes up less often waits with a timeout of seconds, or sleeps."""
AT_REST_SHARE: Final = 0.002
POLLS_SHARE: Final = 0.02
"""A thread that takes less of a core only polls: it looks whether something has come."""
BUSY_SHARE: Final = 0.03
"""Threads that poll take a tenth of that; Gloo's poll a hundred times a second."""


@dataclass(frozen=True, slots=True)
class Ran:
    per_second: float
    """How often it came onto a core."""
    share: float
    """The share of one core that it took."""
    wrote: bool = False
    """It wrote to a file, a pipe or a terminal; known of main threads only."""

    @property
    def rested(self) -> bool:
        return self.per_second < AT_REST_PER_SECOND and self.share < AT_REST_SHARE

    @property
    def polled_at_most(self) -> bool:
        return self.share < POLLS_SHARE

    @property
    def was_busy(self) -> bool:
        return self.share > BUSY_SHARE


@dataclass(frozen=True, slots=True)
class Child:
    pid: int
    name: str
    state: str
    ran: Ran | None


Counts = tuple[int, ...]
"""How often on a core, for how many nanoseconds, and perhaps how many bytes were written."""


def of_thread(rounds: Sequence[Stacks], number: int) -> Ran | None:
    """How much one thread ran, over all looks; None if that is not known."""
    return _between(rounds, lambda beat: _counts(beat.threads.get(str(number))))


def of_others(rounds: Sequence[Stacks], without: Collection[int]) -> Ran | None:
    """How much all threads but those ran."""

    def counts(beat: Beat) -> Counts | None:
        everyone = _counts(beat.all)
        if everyone is None:
            return None
        rows = (beat.threads.get(str(number)) for number in without)
        those = [row for row in map(_counts, rows) if row is not None]
        return everyone[0] - sum(p[0] for p in those), everyone[1] - sum(p[1] for p in those)

    return _between(rounds, counts)


def children_of(rounds: Sequence[Stacks]) -> list[Child]:
    """The child processes that were there at the last look."""
    beats = _beats(rounds)
    if not beats:
        return []
    children = []
    for pid, row in beats[-1][1].children.items():
        if len(row) == 4 and pid.isdigit():
            ran = _between(rounds, partial(_of_child, pid=pid))
            children.append(Child(int(pid), str(row[0]), str(row[1]), ran))
    return children


def _of_child(beat: Beat, pid: str) -> Counts | None:
    return _counts(beat.children.get(pid, ())[2:])


def _between(rounds: Sequence[Stacks], counts: Callable[[Beat], Counts | None]) -> Ran | None:
    """From the end of each look to the beginning of the next."""
    beats = _beats(rounds)
    often = ns = wrote = elapsed_ns = 0
    for (_, earlier), (later, _) in zip(beats, beats[1:], strict=False):
        one, other = counts(earlier), counts(later)
        if one is None or other is None:
            continue
        often += max(other[0] - one[0], 0)
        ns += max(other[1] - one[1], 0)
        wrote += other[2] - one[2] if len(other) == len(one) == 3 else 0
        elapsed_ns += max(later.ns - earlier.ns, 0)
    if elapsed_ns <= 0:
        return None
    return Ran(often * 1e9 / elapsed_ns, ns / elapsed_ns, wrote > 0)


def _beats(rounds: Sequence[Stacks]) -> list[tuple[Beat, Beat]]:
    pulses = [stacks.pulse for stacks in rounds if stacks.pulse is not None]
    return [(p.before, p.after) for p in pulses if p.before is not None and p.after is not None]


def _counts(row: Sequence[str | int] | None) -> Counts | None:
    if row is None or len(row) not in (2, 3):
        return None
    return tuple(number if isinstance(number, int) else 0 for number in row)
