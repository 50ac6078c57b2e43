"""Where a curve's buckets lie.  Pure arithmetic that every engine shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runwatch.errors import UsageError
from runwatch.store.store import Axis

MINUTE_NS: Final = 60 * 10**9
DAY_NS: Final = 86_400 * 10**9
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
MAX_BUCKETS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Grid:
    start: int
    end: int
    width: int

    @property
    def by_minutes(self) -> bool:
        """Every bucket edge is a whole minute: roll-ups of a minute give the exact answer."""
        return not (self.start % MINUTE_NS or self.end % MINUTE_NS or self.width % MINUTE_NS)

    @property
    def buckets(self) -> int:
        return _ceil_div(self.end - self.start, self.width)

    @property
    def fits_int64(self) -> bool:
        return self.end - self.start <= HIGHEST


def grid(axis: Axis, start: int, end: int, buckets: int) -> Grid | None:
    """At most `buckets` equal buckets over [start, end), the first beginning at `start`.

    A time range longer than a day whose buckets are a minute or wider is widened to whole
    minutes, at both ends and in width.  None when the range is empty.
    """
    if not 1 <= buckets <= MAX_BUCKETS:
        raise UsageError(f"buckets must be between 1 and {MAX_BUCKETS}, not {buckets}")
    start, end = max(start, LOWEST), min(end, HIGHEST)
    if end <= start:
        return None
    width = _ceil_div(end - start, buckets)
    if axis == "time" and end - start > DAY_NS and width >= MINUTE_NS:
        start = max(start // MINUTE_NS * MINUTE_NS, LOWEST)
        end = min(_ceil_div(end, MINUTE_NS) * MINUTE_NS, HIGHEST)
        width = _ceil_div(_ceil_div(end - start, buckets), MINUTE_NS) * MINUTE_NS
    return Grid(start, end, width)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
