"""Which stored points a receiver still has to get.

Each series has a place: the time of its newest point that was sent.  The records of a process are
in the order of time, so what lies behind its place is sent.  The writer says which journals have
grown; those of their series are due that have a newer point.  They are read in windows of time, all
series of a window before the next one: a database takes old points only as long as it has no much
newer ones.

The places are kept in a file.  What was sent after it was last written is sent again by the next
head: the same point at the same time, which a database keeps once, or refuses.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from runwatch.clock import Clock, system_clock
from runwatch.exports.gauges import Gauge, points_in, series_labels
from runwatch.head.forward.cursor import CursorFile
from runwatch.record import Batch, JournalId, RunId
from runwatch.rows import SeriesRow
from runwatch.store.store import PointColumns, Store

WINDOW_NS: Final = 300 * 10**9
PAGE_POINTS: Final = 250_000
"""As many as the store reads at once."""
AT_ONCE: Final = 5_000
"""So many series are asked for at a time."""
SAVE_SHARE: Final = 0.05
"""So much of the time may go into writing the file; while it is small it is always written."""


class Backlog:
    """`stored` is for the writer's thread, the rest for one other thread."""

    def __init__(
        self,
        store: Store,
        file: CursorFile,
        *,
        backlog_seconds: float,
        clock: Clock = system_clock,
    ) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._backlog_ns = int(backlog_seconds * 1e9)
        kept = file.read()
        self._since_ns = _whole(kept.get("since_ns"), clock.wall_ns())
        """What was recorded before it was first asked to send is not sent."""
        self._places = _places_of(kept, {row.series for row in store.series()})
        self.sent_before = _whole(kept.get("sent"), 0)
        self.lost_before = _whole(kept.get("lost"), 0)
        self._save_next_ns = 0
        self._taken = dict(self._places)
        """As the places, and what was taken and is not sent yet."""
        self._rows: dict[int, SeriesRow] = {}
        self._due: dict[int, int] = {}
        """Series that have more than was taken → the time of the newest point."""
        self._reached: dict[int, int] = {}
        """Up to where a due series was looked at."""
        self._window: tuple[int, int, list[int]] | None = None
        self._names: dict[RunId, str] = {}
        self._agents: set[JournalId] = set()
        self._taken_points = 0
        self._lock = threading.Lock()
        self._arrived = 0
        self._moved = {row.journal for row in store.processes()}

    # ── in the writer's thread ────────────────────────────────────────────────────────────────

    def stored(self, batches: Sequence[Batch]) -> None:
        grown = [batch.origin.journal for batch in batches if len(batch.points)]
        arrived = sum(len(batch.points) for batch in batches)
        with self._lock:
            self._moved.update(grown)
            self._arrived += arrived

    # ── in the other ──────────────────────────────────────────────────────────────────────────

    def take(self) -> list[Gauge]:
        """The next points, of one window; empty if there are none.  They are not given again: call
        `sent` when they are sent."""
        self._notice()
        while self._due:
            start_ns, end_ns, left = self._window or self._next_window()
            found, left = self._read(start_ns, end_ns, left)
            self._window = (start_ns, end_ns, left) if left else None
            if found:
                self._taken_points += points_in(found)
                return found
        self._taken_points = self._arrived
        return []

    @property
    def waiting(self) -> int:
        """About how many points arrived in this head's time and were not taken."""
        return max(self._arrived - self._taken_points, 0)

    def sent(self, gauges: Iterable[Gauge]) -> None:
        """These are where they should be, or never will be."""
        for gauge in gauges:
            if gauge.series is not None and len(gauge):
                self._places[gauge.series] = gauge.time_ns[-1]

    def endings(self, run: RunId) -> list[Gauge]:
        """For each series of the run of which something was sent: that no more will come."""
        return [
            replace(self._gauge(row, [place_ns + 1_000_000], [math.nan]), ends=True, series=None)
            for row in self._store.series(run)
            if (place_ns := self._places.get(row.series)) is not None
        ]

    def waits_since_ns(self) -> int | None:
        """The time after which points wait that were not taken; None if none does."""
        oldest_ns = self._oldest_ns()
        return min((self._begin(s, oldest_ns) for s in self._due), default=None)

    def save(self, sent: int, lost: int, *, now: bool = False) -> None:
        begin_ns = self._clock.mono_ns()
        if not now and begin_ns < self._save_next_ns:
            return
        oldest_ns = self._oldest_ns()
        for places in (self._places, self._taken):
            for series in [s for s, at_ns in places.items() if at_ns < oldest_ns]:
                del places[series]
        kept = {str(series): at_ns for series, at_ns in self._places.items()}
        self._file.write({"since_ns": self._since_ns, "sent": sent, "lost": lost, "places": kept})
        end_ns = self._clock.mono_ns()
        self._save_next_ns = end_ns + int((end_ns - begin_ns) / SAVE_SHARE)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _oldest_ns(self) -> int:
        """What is older is passed over."""
        return max(self._since_ns, self._clock.wall_ns() - self._backlog_ns)

    def _begin(self, series: int, oldest_ns: int) -> int:
        return max(self._taken.get(series, oldest_ns), oldest_ns)

    def _notice(self) -> None:
        """Hear what the writer has said since the last time."""
        with self._lock:
            moved, self._moved = self._moved, set()
        if not moved:
            return
        for process in self._store.processes():
            if process.run:
                self._names[process.run] = process.run_name
            if process.role == "agent":
                self._agents.add(process.journal)
        rows = {
            row.series: row
            for journal in moved
            for row in self._store.series(None, journal=journal)
        }
        oldest_ns = self._oldest_ns()
        for newest in self._store.latest(list(rows)):
            if newest.time_ns > self._begin(newest.series, oldest_ns):
                self._due[newest.series] = newest.time_ns
                self._rows[newest.series] = rows[newest.series]
                self._reached.pop(newest.series, None)

    def _next_window(self) -> tuple[int, int, list[int]]:
        oldest_ns = self._oldest_ns()
        begins = {s: max(self._begin(s, oldest_ns), self._reached.get(s, 0)) for s in self._due}
        start_ns = min(begins.values())
        end_ns = start_ns + WINDOW_NS
        return start_ns, end_ns, sorted(s for s, at_ns in begins.items() if at_ns < end_ns)

    def _read(self, start_ns: int, end_ns: int, left: list[int]) -> tuple[list[Gauge], list[int]]:
        """A page of the window; and the series that may have more in it."""
        asked, rest = left[:AT_ONCE], left[AT_ONCE:]
        pages = self._store.points(asked, start_ns=start_ns, end_ns=end_ns, rows=PAGE_POINTS)
        page = next(pages, None)
        del pages  # what it holds of the store is not held while something is sent
        found = [] if page is None else list(self._gauges(page))
        more: list[int] = []
        if page is not None and len(page) >= PAGE_POINTS and found:
            # The last series may go on after this page, and others may come.
            whole = set(np.unique(page.series).tolist()) - {int(page.series[-1])}
            more = [series for series in asked if series not in whole]
        for series in set(asked) - set(more):
            self._looked(series, end_ns)
        return found, more + rest

    def _looked(self, series: int, until_ns: int) -> None:
        """All that the series has in this window was taken."""
        if self._due.get(series, 0) >= until_ns:
            self._reached[series] = until_ns
            return
        self._due.pop(series, None)
        self._reached.pop(series, None)
        self._rows.pop(series, None)

    def _gauges(self, page: PointColumns) -> Iterator[Gauge]:
        oldest_ns = self._oldest_ns()
        for series, rows in page.by_series():
            times, values = page.time_ns[rows], page.value[rows]
            new = int(np.searchsorted(times, self._begin(series, oldest_ns), side="right"))
            if new < len(times):
                self._taken[series] = int(times[-1])
                yield self._gauge(self._rows[series], times[new:].tolist(), values[new:].tolist())

    def _gauge(self, row: SeriesRow, time_ns: list[int], value: list[float]) -> Gauge:
        of_host = row.journal in self._agents and not row.labels.get("journal")
        labels = series_labels(row, self._names.get(row.run, ""), of_host=of_host)
        return Gauge(row.metric, labels, time_ns, value, row.unit, row.series)


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _places_of(kept: Mapping[str, Any], known: set[int]) -> dict[int, int]:
    places = kept.get("places")
    if not isinstance(places, dict):
        return {}
    return {
        int(series): at_ns
        for series, at_ns in places.items()
        if series.isdigit() and int(series) in known and isinstance(at_ns, int)
    }
