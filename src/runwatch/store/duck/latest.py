"""The newest point of every series, in arrays over dense slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from runwatch.record import NO_STEP
from runwatch.rows import Latest
from runwatch.store.entries import Integers

Floats = npt.NDArray[np.float64]

_NEVER = -(2**63)


class LatestValues:
    def __init__(self) -> None:
        self._time_ns: Integers = np.full(1024, _NEVER, np.int64)
        self._step: Integers = np.full(1024, NO_STEP, np.int64)
        self._value: Floats = np.zeros(1024, np.float64)

    def update(self, slots: Integers, time_ns: Integers, step: Integers, value: Floats) -> None:
        """Take the newer points; among equal times the one that came later wins."""
        if not len(slots):
            return
        self._grow(int(slots.max()) + 1)
        if (time_ns[1:] < time_ns[:-1]).any():
            order = np.argsort(time_ns, kind="stable")
            slots, time_ns, step, value = slots[order], time_ns[order], step[order], value[order]
        newer = time_ns >= self._time_ns[slots]
        if not newer.all():
            slots, time_ns, step, value = slots[newer], time_ns[newer], step[newer], value[newer]
        # For repeated indices numpy keeps the last assignment, which is the newest here.
        self._time_ns[slots] = time_ns
        self._step[slots] = step
        self._value[slots] = value

    def of(self, slots: Sequence[int], ids: Sequence[int]) -> list[Latest]:
        """The latest points of the series in these slots, with these ids, if they have any."""
        at, times = np.array(slots, np.int64), self._time_ns
        has_point = at < len(times)
        has_point[has_point] = times[at[has_point]] != _NEVER
        if not has_point.all():
            at, ids = at[has_point], np.array(ids, np.int64)[has_point].tolist()
        # Reading the arrays cell by cell would take most of the time.
        steps = self._step[at]
        shown_steps: list[int | None] = [None] * len(at)
        if (steps != NO_STEP).any():
            shown_steps = [None if step == NO_STEP else step for step in steps.tolist()]
        rows = zip(ids, times[at].tolist(), shown_steps, self._value[at].tolist(), strict=True)
        return list(map(Latest._make, rows))

    def columns(self) -> tuple[Integers, Integers, Integers, Floats]:
        """Slot, time, step and value of every series that has a point; copies."""
        slots = np.flatnonzero(self._time_ns != _NEVER)
        return slots, self._time_ns[slots], self._step[slots], self._value[slots]

    def _grow(self, size: int) -> None:
        have = len(self._time_ns)
        if size <= have:
            return
        extra = max(size - have, have)
        self._time_ns = np.concatenate([self._time_ns, np.full(extra, _NEVER, np.int64)])
        self._step = np.concatenate([self._step, np.full(extra, NO_STEP, np.int64)])
        self._value = np.concatenate([self._value, np.zeros(extra, np.float64)])
