"""The buckets of time of a curve, a band or a heat map.

Pure arithmetic that stores and views share.  A store keeps roll-ups of whole minutes: buckets whose
edges are whole minutes get an exact answer from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from runwatch.errors import UsageError

Axis = Literal["time", "step"]

SECOND_NS: Final = 10**9
MINUTE_NS: Final = 60 * 10**9
DAY_NS: Final = 86_400 * 10**9
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
MAX_BUCKETS: Final = 1_000_000
MANY_POINTS: Final = 4_000_000
"""A heat map of more points than this, at one per second, is made from roll-ups."""


@dataclass(frozen=True, slots=True)
class Grid:
    start: int
    end: int
    width: int

    @property
    def by_minutes(self) -> bool:
        """Every bucket edge is a whole minute, so one-minute roll-ups give the exact answer."""
        return not (self.start % MINUTE_NS or self.end % MINUTE_NS or self.width % MINUTE_NS)

    @property
    def buckets(self) -> int:
        return _ceil_div(self.end - self.start, self.width)

    @property
    def fits_int64(self) -> bool:
        return self.end - self.start <= HIGHEST


def grid(axis: Axis, start: int, end: int, buckets: int) -> Grid | None:
    """At most `buckets` equal buckets over [start, end), the first beginning at `start`.

    A time range longer than a day with buckets of a minute or wider is widened to whole minutes, at
    both ends and in width.  None when the range is empty.
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


def steady_grid(start_ns: int, end_ns: int, most: int) -> Grid:
    """At most about `most` buckets whose edges do not move when the window moves."""
    width = max(_ceil_div(end_ns - start_ns, most), 1)
    if width >= MINUTE_NS:
        width = _ceil_div(width, MINUTE_NS) * MINUTE_NS
    start = start_ns // width * width
    count = max(_ceil_div(end_ns - start, width), 1)
    return Grid(start, start + width * count, width)


def heat_grid(start_ns: int, end_ns: int, most: int, series: int) -> Grid:
    """At most `most` buckets; of whole minutes where raw points would be too many to read."""
    start, width = start_ns, _ceil_div(end_ns - start_ns, most)
    if width >= MINUTE_NS or series * (end_ns - start_ns) // SECOND_NS > MANY_POINTS:
        start = start // MINUTE_NS * MINUTE_NS
        width = _ceil_div(width, MINUTE_NS) * MINUTE_NS
        if _ceil_div(end_ns - start, width) > most:
            width += MINUTE_NS
    count = _ceil_div(end_ns - start, width)
    return Grid(start, start + count * width, width)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
