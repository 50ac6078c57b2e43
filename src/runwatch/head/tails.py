"""Since when series have been NaN or infinite; for runs that are well this asks the store nothing.

A curve shows in which bucket the last finite value is, and only that bucket is read point by point.
What was found is kept, so that the next look reads only what came since.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from runwatch.record import NO_STEP
from runwatch.rows import Curve, Latest, SeriesRow
from runwatch.store.store import PointColumns, Store
from runwatch.views.divergence import Tail, is_loss

BUCKETS: Final = 200
MOST_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Found:
    """Up to `until_ns`; without a bad value at the end, `points` is 0."""

    until_ns: int
    since_ns: int
    step: int | None
    points: int
    after_good: bool


class Tails:
    """Any thread may call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[int, _Found] = {}

    def of(self, series: Iterable[SeriesRow], latest: Mapping[int, Latest]) -> list[Tail]:
        """The losses among these series whose newest value is NaN or infinite."""
        found: list[Tail] = []
        for row in series:
            point = latest.get(row.series)
            if point is None or math.isfinite(point.value) or not is_loss(row.metric):
                continue
            at = self._at(row.series, point)
            found.append(
                Tail(
                    row, point.value, at.since_ns, at.step, at.points, at.after_good, point.time_ns
                )
            )
        return found

    def _at(self, series: int, point: Latest) -> _Found:
        with self._lock:
            known = self._known.get(series)
        if known is None or known.until_ns < point.time_ns:
            known = self._read(series, point, known)
            with self._lock:
                if len(self._known) >= MOST_KEPT:
                    self._known.clear()
                self._known[series] = known
        return known

    def _read(self, series: int, point: Latest, known: _Found | None) -> _Found:
        until_ns = point.time_ns
        only_it = _Found(until_ns, until_ns, point.step, 1, known is not None and known.after_good)
        start = None if known is None else known.until_ns + 1
        curves = self._store.curves([series], start=start, end=until_ns + 1, buckets=BUCKETS)
        if not curves or not curves[0].position:  # deleted meanwhile
            return known or only_it
        curve = curves[0]
        good = max((at for at, count in enumerate(curve.count) if count), default=None)
        if good is None and known is not None:
            more = sum(curve.nonfinite)
            return _Found(
                until_ns, known.since_ns, known.step, known.points + more, known.after_good
            )
        return self._begin(curve, good, until_ns) or only_it

    def _begin(self, curve: Curve, good: int | None, until_ns: int) -> _Found | None:
        """Where the bad values after the last good bucket begin."""
        later = 0 if good is None else good + 1
        points = sum(curve.nonfinite[later:])
        if good is not None and (within := self._bad_at_the_end(curve, good)) is not None:
            since_ns, step, count = within
            return _Found(until_ns, since_ns, step, points + count, True)
        if later >= len(curve.position):
            return None
        bucket = self._points(curve, later)
        if not len(bucket):  # only the roll-ups are left
            return _Found(until_ns, curve.time_ns[later], None, points, good is not None)
        since_ns, step = int(bucket.time_ns[0]), _step(bucket, 0)
        return _Found(until_ns, since_ns, step, points, good is not None)

    def _bad_at_the_end(self, curve: Curve, at: int) -> tuple[int, int | None, int] | None:
        if not curve.nonfinite[at]:
            return None
        bucket = self._points(curve, at)
        good = np.flatnonzero(np.isfinite(bucket.value))
        first = int(good[-1]) + 1 if len(good) else 0
        if first >= len(bucket):
            return None
        return int(bucket.time_ns[first]), _step(bucket, first), len(bucket) - first

    def _points(self, curve: Curve, at: int) -> PointColumns:
        start = curve.position[at]
        parts = list(self._store.points([curve.series], start_ns=start, end_ns=start + curve.width))
        if not parts:
            nothing = np.empty(0, np.int64)
            return PointColumns(nothing, nothing, nothing, np.empty(0))
        return PointColumns.joined(parts)


def _step(points: PointColumns, at: int) -> int | None:
    step = int(points.step[at])
    return None if step == NO_STEP else step
