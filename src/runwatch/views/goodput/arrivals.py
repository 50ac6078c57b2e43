"""When values of steps had arrived: the thread that waits for them tells.

A program may log values that its device has yet to compute.  The point `device_lag_seconds` of a
step says how long after that its last one was there: by then the device had done what it was handed
before, and 25 ms earlier it had not.  So it is known, and need not be thought, how far the device
was behind.  Programs that log no such values, and journals from before, tell nothing here.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runwatch.record import Points
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.judging import FEW, Excess, Took, is_plain, judge

DEVICE_LAG: Final = "device_lag_seconds"
KNOWN_NS: Final = 25_000_000
"""So long before a value was seen it was not there yet; of others nothing is recorded."""
SEEN_NS: Final = 5_000_000
"""How long a value has usually been there when it is seen."""
LATE: Final = 2
_SANE_SECONDS: Final = 4e9
_LATE_IN_STEP: Final = 0.2

if TYPE_CHECKING:
    Columns = tuple[array[int], array[int], array[int]]
    """Of which step, when it was logged, when it was there."""


class Arrived(NamedTuple):
    """By step, 0 where nothing tells: when its last value was there …"""

    values: list[int]
    """… so that the device had something to do until shortly before, …"""
    steps: list[int]
    """… and, if it is logged where steps end, was done with the step.  If it usually is before, the
    rest is yet to be handed over: a backward pass, for one."""


class Arrivals:
    """Of an attempt, by process, each in the order of time."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, Columns] = {}

    def __bool__(self) -> bool:
        return bool(self._told)

    def tell(self, key: str, points: Points, series: Collection[int]) -> None:
        """What a process recorded of them."""
        for number, time_ns, step, seconds in zip(
            points.series, points.time_ns, points.step, points.value, strict=True
        ):
            if number in series and 0 <= seconds < _SANE_SECONDS:
                steps, logged, there = self._told.setdefault(
                    key, (array("q"), array("q"), array("q"))
                )
                steps.append(step)
                logged.append(time_ns)
                there.append(time_ns + round(seconds * 1e9))

    def of(
        self, steps: Sequence[int], begins: Sequence[int], ends: Sequence[int], alone: bool
    ) -> Arrived:
        """What is said of a step by its number is believed if it was logged before the next one
        began and, if there is but one process, since it began: people count in other ways, too."""
        found = Arrived([0] * len(steps), [0] * len(steps))
        place = {step: at for at, step in enumerate(steps)}
        rest: list[int] = []
        took: list[int] = []
        for columns in self._told.values():
            for step, logged, there in zip(*columns, strict=True):
                at = place.get(step)
                if at is None:
                    if logged > ends[-1]:
                        break
                    continue
                late = at + 1 < len(begins) and logged >= begins[at + 1]
                early = there < begins[at] or (alone and logged < begins[at])
                if late or early:
                    continue
                found.values[at] = max(found.values[at], there)
                rest.append(ends[at] - logged)
                took.append(ends[at] - begins[at])
        if rest and _middle(rest) <= _LATE_IN_STEP * _middle(took):
            return Arrived(found.values, found.values)
        return found

    def forget(self, before_ns: int) -> None:
        """What was logged before then is of no use any more."""
        for columns in self._told.values():
            _, logged, _ = columns
            count = next((at for at, ns in enumerate(logged) if ns >= before_ns), len(logged))
            for numbers in columns:
                del numbers[:count]

    def copy(self) -> Arrivals:
        """To be asked, not told."""
        made = Arrivals()
        for key, (steps, logged, there) in self._told.items():
            made._told[key] = steps[:], logged[:], there[:]
        return made

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> list[list[Any]]:
        return [[key, *columns] for key, columns in self._told.items()]

    @classmethod
    def of_state(cls, state: Sequence[Sequence[Any]]) -> Arrivals:
        made = cls()
        for key, steps, logged, there in state:
            made._told[key] = array("q", steps), array("q", logged), array("q", there)
        return made


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


def is_behind(there: Sequence[int], ends: Sequence[int]) -> bool:
    """Whether steps were seen to end before their work was done."""
    late = 0
    for arrived, end in zip(there, ends, strict=True):
        late += arrived - KNOWN_NS > end
    return late >= LATE


def longest_silence(there: Sequence[int], start_ns: int, end_ns: int) -> int:
    """Of a stretch of time: the longest in which nothing arrived; `there` ascends."""
    within = [ns for ns in there if start_ns < ns < end_ns]
    return max(b - a for a, b in pairwise([start_ns, *within, end_ns]))


def usual_distance(there: Sequence[int]) -> int:
    """From one arrival to the next; the middle of them."""
    return _middle([b - a for a, b in pairwise(there)]) if len(there) > 1 else 0


def long_on_device(
    steps: Sequence[int], begins: Sequence[int], there: Sequence[int]
) -> dict[int, Excess]:
    """Steps that the device took out of line for: those of which it is known, by the same rule as
    steps of a program that waits for each."""
    rows: list[int] = []
    took = Took()
    for at, arrived in enumerate(there):
        if arrived and at and there[at - 1]:
            rows.append(at)
            took.add(steps[at], max(0, arrived - max(there[at - 1], begins[at])), 0)
    if len(took) <= FEW or is_plain(took, 0, len(took)):
        return {}
    found = judge(took, 0, (), len(took)).excess
    return {rows[row]: over for row, over in found.items() if over.spent != Spent.PRODUCTIVE}
