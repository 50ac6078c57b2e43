"""How much a process ran between two looks, from the pulses that were felt with them.

`capture/pulse.py` felt them: how often a thread came onto a core, and for how long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

AT_REST_PER_SECOND: Final = 0.7
"""Who wakes up less often waits with a timeout of seconds, if it wakes up at all."""
AT_REST_SHARE: Final = 0.002
POLLS_SHARE: Final = 0.02
"""Who takes less of a core looks whether something has come, again and again."""
BUSY_SHARE: Final = 0.03
"""Threads that look for news, Gloo's a hundred times a second, take a tenth of that."""


@dataclass(frozen=True, slots=True)
class Ran:
    per_second: float
    """How often it came onto a core."""
    share: float
    """Of one core."""
    wrote: bool = False
    """To a file, a pipe or a terminal; known of main threads only."""

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
    """One thread's, over all the looks; None if that is not known."""
    return _between(rounds, lambda side: _pair(_mapping(side.get("threads")).get(str(number))))


def of_others(rounds: Sequence[Mapping[str, Any]], without: Collection[int]) -> Ran | None:
    """All threads' but those."""

    def pair(side: Mapping[str, Any]) -> tuple[int, ...] | None:
        everyone = _pair(side.get("all"))
        if everyone is None:
            return None
        threads = _mapping(side.get("threads"))
        left = [p for number in without if (p := _pair(threads.get(str(number)))) is not None]
        return everyone[0] - sum(p[0] for p in left), everyone[1] - sum(p[1] for p in left)

    return _between(rounds, pair)


def children_of(rounds: Sequence[Mapping[str, Any]]) -> list[Child]:
    """Those that were there at the last look."""
    last = next((p for p in (_pulse(r) for r in reversed(rounds)) if p), None)
    if last is None:
        return []
    found = []
    for pid, said in _mapping(last[1].get("children")).items():
        if not isinstance(said, list | tuple) or len(said) != 4 or not str(pid).isdigit():
            continue
        ran = _between(rounds, lambda side, pid=pid: _child_pair(side, pid))
        found.append(Child(int(pid), str(said[0]), str(said[1]), ran))
    return found


def _child_pair(side: Mapping[str, Any], pid: Any) -> tuple[int, ...] | None:
    said = _mapping(side.get("children")).get(pid)
    return _pair(said[2:]) if isinstance(said, list | tuple) else None


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
