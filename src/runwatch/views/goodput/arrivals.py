"""When values of steps arrived, as recorded by the thread that waits for them.

A program may log values that its device has yet to compute.  The point `device_lag_seconds` of a
step says how long after the log call its last value arrived.  By then the device had done all work
handed to it before that call; 25 ms earlier it had not.  So it is known, not guessed, how far the
device was behind.  Programs that log no such values, and older journals, have no such points.
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
"""A value was certainly not there this long before it was seen.  Nothing is recorded of other
values."""
SEEN_NS: Final = 5_000_000
"""How long a value has usually been there when it is seen."""
LATE: Final = 2
_SANE_SECONDS: Final = 4e9
_LATE_IN_STEP: Final = 0.2

if TYPE_CHECKING:
    Columns = tuple[array[int], array[int], array[int]]
    """The step, when its value was logged, when its value was there."""


class Arrived(NamedTuple):
    """By step: when the last value of the step arrived; 0 if that is not known."""

    values: list[int]
    """The device had work until shortly before this time."""
    steps: list[int]
    """The device was done with the step.  Only known where values are logged at the end of steps: a
    value logged earlier leaves work to be handed over, such as a backward pass."""


class Arrivals:
    """The arrivals of an attempt, by process, each in the order of time."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, Columns] = {}

    def __bool__(self) -> bool:
        return bool(self._told)

    def tell(self, key: str, points: Points, series: Collection[int]) -> None:
        """Adds the arrivals that a process recorded."""
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
        """Arrivals of these steps.  A value counts for a step if it was logged before the next step
        began and, with a single process, after the step began: people also count steps in other
        ways."""
        arrived = Arrived([0] * len(steps), [0] * len(steps))
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
                arrived.values[at] = max(arrived.values[at], there)
                rest.append(ends[at] - logged)
                took.append(ends[at] - begins[at])
        if rest and _middle(rest) <= _LATE_IN_STEP * _middle(took):
            return Arrived(arrived.values, arrived.values)
        return arrived

    def forget(self, before_ns: int) -> None:
        """Drops values logged before then: they are no longer needed."""
        for columns in self._told.values():
            _, logged, _ = columns
            count = next((at for at, ns in enumerate(logged) if ns >= before_ns), len(logged))
            for numbers in columns:
                del numbers[:count]

    def copy(self) -> Arrivals:
        """A copy to ask; nothing is added to it."""
        copy = Arrivals()
        for key, (steps, logged, there) in self._told.items():
            copy._told[key] = steps[:], logged[:], there[:]
        return copy

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> list[list[Any]]:
        return [[key, *columns] for key, columns in self._told.items()]

    @classmethod
    def of_state(cls, state: Sequence[Sequence[Any]]) -> Arrivals:
        arrivals = cls()
        for key, steps, logged, there in state:
            arrivals._told[key] = array("q", steps), array("q", logged), array("q", there)
        return arrivals


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


def is_behind(there: Sequence[int], ends: Sequence[int]) -> bool:
    """Whether steps were seen to end before the device had done their work."""
    late = 0
    for arrived, end in zip(there, ends, strict=True):
        late += arrived - KNOWN_NS > end
    return late >= LATE


def longest_silence(there: Sequence[int], start_ns: int, end_ns: int) -> int:
    """The longest time between `start_ns` and `end_ns` in which nothing arrived; `there`
    ascends."""
    within = [ns for ns in there if start_ns < ns < end_ns]
    return max(b - a for a, b in pairwise([start_ns, *within, end_ns]))


def usual_distance(there: Sequence[int]) -> int:
    """The median time from one arrival to the next."""
    return _middle([b - a for a, b in pairwise(there)]) if len(there) > 1 else 0


def long_on_device(
    steps: Sequence[int], begins: Sequence[int], there: Sequence[int]
) -> dict[int, Excess]:
    """Steps that took the device far longer than others.  Only steps with known arrivals are
    judged, by the rule for programs that wait for each step."""
    rows: list[int] = []
    took = Took()
    for at, arrived in enumerate(there):
        if arrived and at and there[at - 1]:
            rows.append(at)
            took.add(steps[at], max(0, arrived - max(there[at - 1], begins[at])), 0)
    if len(took) <= FEW or is_plain(took, 0, len(took)):
        return {}
    excess = judge(took, 0, (), len(took)).excess
    return {rows[row]: over for row, over in excess.items() if over.spent != Spent.PRODUCTIVE}
