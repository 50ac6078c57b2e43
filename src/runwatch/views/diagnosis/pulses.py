"""How much a process ran between two looks at its stacks.

Each look has a pulse, taken before and after it (`capture/pulse.py`): how often each thread came
onto a core so far, and for how long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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


def of_thread(rounds: Sequence[Mapping[str, Any]], number: int) -> Ran | None:
    """How much one thread ran, over all looks; None if that is not known."""
    return _between(rounds, lambda side: _pair(_mapping(side.get("threads")).get(str(number))))


def of_others(rounds: Sequence[Mapping[str, Any]], without: Collection[int]) -> Ran | None:
    """How much all threads but those ran."""

    def pair(side: Mapping[str, Any]) -> tuple[int, ...] | None:
        everyone = _pair(side.get("all"))
        if everyone is None:
            return None
        threads = _mapping(side.get("threads"))
        those = [p for number in without if (p := _pair(threads.get(str(number)))) is not None]
        return everyone[0] - sum(p[0] for p in those), everyone[1] - sum(p[1] for p in those)

    return _between(rounds, pair)


def children_of(rounds: Sequence[Mapping[str, Any]]) -> list[Child]:
    """The child processes that were there at the last look."""
    last = next((p for p in (_pulse(r) for r in reversed(rounds)) if p), None)
    if last is None:
        return []
    children = []
    for pid, row in _mapping(last[1].get("children")).items():
        if not isinstance(row, list | tuple) or len(row) != 4 or not str(pid).isdigit():
            continue
        ran = _between(rounds, lambda side, pid=pid: _child_pair(side, pid))
        children.append(Child(int(pid), str(row[0]), str(row[1]), ran))
    return children


def _child_pair(side: Mapping[str, Any], pid: Any) -> tuple[int, ...] | None:
    row = _mapping(side.get("children")).get(pid)
    return _pair(row[2:]) if isinstance(row, list | tuple) else None


def _between(rounds: Sequence[Mapping[str, Any]], pair: Any) -> Ran | None:
    """From the end of each look to the beginning of the next."""
    pulses = [pulse for each in rounds if (pulse := _pulse(each)) is not None]
    often = ns = wrote = elapsed_ns = 0
    for (_, earlier), (later, _) in zip(pulses, pulses[1:], strict=False):
        one, other = pair(earlier), pair(later)
        if one is None or other is None:
            continue
        often += max(other[0] - one[0], 0)
        ns += max(other[1] - one[1], 0)
        wrote += other[2] - one[2] if len(other) == len(one) == 3 else 0
        elapsed_ns += max(_number(later.get("ns")) - _number(earlier.get("ns")), 0)
    if elapsed_ns <= 0:
        return None
    return Ran(often * 1e9 / elapsed_ns, ns / elapsed_ns, wrote > 0)


def _pulse(stacks: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    pulse = _mapping(stacks.get("pulse"))
    before, after = pulse.get("before"), pulse.get("after")
    both = isinstance(before, Mapping) and isinstance(after, Mapping)
    return (before, after) if both else None  # type: ignore[return-value]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pair(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        return None
    return tuple(map(_number, value))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
