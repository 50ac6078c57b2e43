"""When entries say that they happened, in the order of the log: nearly always that of time, too."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from math import inf
from typing import Final

TIES: Final = 8
"""So many entries of one instant are looked through for a duplicate; more are kept by name."""

_NOWHERE: Final = -1


class Moments:
    """A column of times in the order of the log, and which are late: a later one precedes them."""

    def __init__(self) -> None:
        self.times: array[float] = array("d")
        self.newest = -inf
        """The latest time of all."""
        self.late_at: array[int] = array("q")
        self._late_below: array[int] = array("q")
        """The row whose time was the latest when a late one came."""
        self._newest_at = _NOWHERE

    def __len__(self) -> int:
        return len(self.times)

    def append(self, time: float) -> bool:
        """Whether it is late, or one of many of the same instant."""
        late = time < self.newest or (time == self.newest and not self._is_few_of_an_instant())
        if late:
            self.late_at.append(len(self.times))
            self._late_below.append(self._newest_at)
        self.times.append(time)
        self.grown()
        return late

    def grown(self) -> None:
        """The last time was appended to `times`, perhaps with others in order before it."""
        if self.times and self.times[-1] > self.newest:
            self.newest, self._newest_at = self.times[-1], len(self.times) - 1

    def _is_few_of_an_instant(self) -> bool:
        """Whether all since the newest, and not many, are of its time."""
        last = self.times[self._newest_at :]
        return len(last) < TIES and all(time == self.newest for time in last)

    def cut(self, row: int) -> None:
        """Forget the rows from `row` on."""
        del self.times[row:]
        end = bisect_left(self.late_at, row)
        del self.late_at[end:], self._late_below[end:]
        self._newest_at = self._holder(row - 1) if row else _NOWHERE
        self.newest = self.times[self._newest_at] if row else -inf

    def first_from(self, time: float) -> int:
        """The first row before which all are earlier than `time`, and at or after it."""
        if not self.late_at:
            return bisect_left(self.times, time)
        return bisect_left(range(len(self.times)), time, key=self._height)

    def is_in_order_from(self, row: int) -> bool:
        return not self.late_at or self.late_at[-1] < row

    def first_after(self, time: float) -> int:
        if not self.late_at:
            return bisect_right(self.times, time)
        return bisect_right(range(len(self.times)), time, key=self._height)

    def _height(self, row: int) -> float:
        """The latest time up to a row."""
        return self.times[self._holder(row)]

    def _holder(self, row: int) -> int:
        place = bisect_left(self.late_at, row)
        is_late = place < len(self.late_at) and self.late_at[place] == row
        return self._late_below[place] if is_late else row

    def set_back(self, after: int, until: int) -> float:
        """By how much a clock was set back, in all, from row `after` to row `until`."""
        if not self.late_at:
            return 0.0
        low, high = bisect_right(self.late_at, after), bisect_right(self.late_at, until)
        times = self.times
        return sum(max(times[row - 1] - times[row], 0.0) for row in self.late_at[low:high])
