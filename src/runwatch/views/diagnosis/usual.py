"""How long steps and spans of a run usually take: learned from the last ones."""

from __future__ import annotations

from collections import OrderedDict, deque
from statistics import median
from typing import Any, Final

WINDOW: Final = 64
"""What is usual is learned from so many of the last ones."""
FEW: Final = 3
"""From fewer than these nothing is learned yet."""
FEW_ENOUGH: Final = 16
"""With fewer than these the median is taken anew each time, else each so many times."""
MOST_PAUSES: Final = 32
_MAD_SCALE: Final = 1.4826
"""Makes a standard deviation of the median absolute deviation of a normal distribution."""


class Usual:
    """How long one thing usually takes; a few that took much longer change nothing."""

    __slots__ = ("_added", "_median", "_pauses", "_took", "_usual_ns")

    def __init__(self) -> None:
        # By key, so that the ranks of one step count once, with the time of the slowest.
        self._took: OrderedDict[Any, int] = OrderedDict()
        self._pauses: deque[int] = deque(maxlen=MOST_PAUSES)
        self._median = 0.0
        self._added = 0
        self._usual_ns: int | None = None

    def __len__(self) -> int:
        return len(self._took)

    def add(self, key: Any, took_ns: int) -> None:
        before = self._took.get(key)
        if before is None:
            self._begin(key, took_ns)
        elif took_ns <= before:
            return
        self._took[key] = took_ns
        self._usual_ns = None
        if len(self._took) > FEW and took_ns > 3 * self._median:
            self._pauses.append(took_ns)

    def _begin(self, key: Any, took_ns: int) -> None:
        self._took[key] = took_ns
        if len(self._took) > WINDOW:
            self._took.popitem(last=False)
        self._added += 1
        if len(self._took) < FEW_ENOUGH or self._added % FEW_ENOUGH == 0:  # sorting is costly
            self._median = median(self._took.values())

    def ns(self) -> int:
        """The median plus three standard deviations."""
        if self._usual_ns is None:
            middle = median(self._took.values())
            spread = median(abs(took - middle) for took in self._took.values())
            self._usual_ns = int(middle + 3 * _MAD_SCALE * spread)
        return self._usual_ns

    def longest_pause_ns(self) -> int:
        return max(self._pauses, default=0)
