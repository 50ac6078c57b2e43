"""Plain steps as columns: a loop repeats itself, and most of a journal is such steps.

Where step numbers are consecutive, and only waits for data are recorded between the steps, a step
is a row of a few columns, not an object, and a thousand steps are one operation.  This is only a
short cut: step by step (`track.py`, `muster.py`) the same account comes out.

The short cut is taken where numpy is already loaded (`vectors.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from runwatch.record import BEGIN, Points, Spans
from runwatch.vectors import column, numpy
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.track import LATE_STEPS, Piece, Stride, Track

if TYPE_CHECKING:
    from runwatch.vectors import Column

LEAST_STEPS: Final = 8
"""Fewer steps are quicker one by one."""
SANE_NS: Final = 1 << 61
"""Times and waits beyond this are handled one by one."""
_SANE_SECONDS: Final = 4e9
_NEVER: Final = 1 << 63


class Strides:
    """Consecutive completed steps of one process."""

    __slots__ = ("begins", "ends", "first", "lap", "since_ns", "waits")

    def __init__(
        self, lap: int, first: int, since_ns: int, begins: Column, ends: Column, waits: Column
    ) -> None:
        self.lap = lap
        self.first = first
        self.since_ns = since_ns
        """When the step before the first ended."""
        self.begins = begins
        self.ends = ends
        self.waits = waits
        """Since when each step waited for its data; its begin if it did not."""

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def last(self) -> int:
        return self.first + len(self) - 1

    def between(self, start: int, stop: int) -> Strides:
        since = int(self.ends[start - 1]) if start else self.since_ns
        rows = slice(start, stop)
        return Strides(
            self.lap, self.first + start, since,
            self.begins[rows], self.ends[rows], self.waits[rows],
        )  # fmt: skip

    def each(self) -> Iterator[Stride]:
        since, step = self.since_ns, self.first
        rows = zip(self.begins.tolist(), self.ends.tolist(), self.waits.tolist(), strict=True)
        for begin, end, wait in rows:
            gap = [(wait, begin, int(Spent.DATA_LOADING))] if wait < begin else []
            yield Stride(self.lap, step, since, begin, end, gap, [])
            since, step = end, step + 1

    def behind(self, done: Sequence[Stride]) -> Strides | None:
        """With these steps before them; None if those are not plain or not consecutive."""
        if not done:
            return self
        first = self.first - len(done)
        waits = []
        for step, stride in enumerate(done, first):
            wait = waited_since(stride.begin_ns, stride.gap)
            if stride.lap != self.lap or stride.step != step or stride.inside or wait is None:
                return None
            waits.append(wait)
        np = numpy()
        begins = [stride.begin_ns for stride in done]
        ends = [stride.end_ns for stride in done]
        return Strides(
            self.lap, first, done[0].since_ns,
            np.concatenate((np.array(begins, np.int64), self.begins)),
            np.concatenate((np.array(ends, np.int64), self.ends)),
            np.concatenate((np.array(waits, np.int64), self.waits)),
        )  # fmt: skip


def waited_since(begin_ns: int, gap: Sequence[Piece]) -> int | None:
    """Since when a step waited for data, if nothing else claims the time before it."""
    if not gap:
        return begin_ns
    start, end, spent = gap[0]
    plain = len(gap) == 1 and end == begin_ns and spent == Spent.DATA_LOADING
    return start if plain else None


class Waits:
    """Waits for data in the order of recording: when, which step, how long."""

    __slots__ = ("next_ns", "_at", "_seconds", "_steps", "_times")

    def __init__(self, points: Points, series: set[int]) -> None:
        self._times, self._steps, self._seconds = _of_series(points, series)
        self._at = 0
        self.next_ns = self._times[0] if self._times else _NEVER

    def tell(self, track: Track, before_ns: int) -> None:
        """Passes on all waits recorded before then."""
        while self.next_ns < before_ns:
            seconds = self._seconds[self._at]
            if (
                abs(seconds) < _SANE_SECONDS
            ):  # a step number may be anything: programs record what they like
                track.waited(self._steps[self._at], round(seconds * 1e9))
            self._go_on(self._at + 1)

    def tell_all(self, track: Track) -> None:
        self.tell(track, _NEVER)

    def _go_on(self, at: int) -> None:
        self._at = at
        self.next_ns = self._times[at] if at < len(self._times) else _NEVER

    def of(self, first: int, since_ns: int, begins: Column, ends: Column) -> Column | None:
        """Since when these steps waited for their data; None if the waits are not plain."""
        np = numpy()
        at, times = self._at, column(self._times)
        until = at + int(np.searchsorted(times[at:], ends[-1], "right"))
        waited: Column = begins.copy()
        if until > at:
            times, rows = times[at:until], column(self._steps)[at:until] - first
            seconds = np.frombuffer(self._seconds, np.float64)[at:until]
            if not self._are_plain(rows, times, seconds, ends):
                return None
            since = np.concatenate((np.array([since_ns], np.int64), ends[:-1]))
            begun = begins[rows]
            asked = begun - np.rint(seconds * 1e9).astype(np.int64)
            waited[rows] = np.minimum(np.maximum(asked, since[rows]), begun)
        self._go_on(until)
        return waited

    def _are_plain(self, rows: Column, times: Column, seconds: Any, ends: Column) -> bool:
        """Whether each step has at most one wait, recorded at its end or soon after, with sane
        numbers."""
        np = numpy()
        if rows[0] < 0 or rows[-1] >= len(ends) or not (np.abs(seconds) < _SANE_SECONDS).all():
            return False
        if len(rows) == len(ends) and (times == ends).all():
            return bool((rows == np.arange(len(ends))).all())
        late = np.searchsorted(ends, times, "right") - 1 - rows
        in_order = (rows[1:] > rows[:-1]).all() and (times[1:] >= times[:-1]).all()
        return bool(in_order and ((late >= 0) & (late < LATE_STEPS)).all())


def _of_series(points: Points, series: set[int]) -> tuple[array[int], array[int], array[float]]:
    if not series or not len(points):
        return array("q"), array("q"), array("d")
    if series.issuperset(set(points.series)):
        return points.time_ns, points.step, points.value
    mine = [number in series for number in points.series]
    return (
        array("q", compress(points.time_ns, mine)),
        array("q", compress(points.step, mine)),
        array("d", compress(points.value, mine)),
    )


def plain_runs(spans: Spans, some: range, names: Sequence[int]) -> Iterator[range]:
    """The ranges of edges in which whole steps follow one another, in time and by number; `names`
    are those of steps."""
    np = numpy()
    if np is None or len(some) < 2 * LEAST_STEPS or len(names) != 1:
        return
    part = slice(some.start, some.stop)
    times, steps = column(spans.time_ns)[part], column(spans.step)[part]
    if times.max() >= SANE_NS or times.min() <= -SANE_NS:
        return
    is_step = np.frombuffer(spans.name, np.uint32)[part] == names[0]
    begins = np.frombuffer(spans.edge, np.uint8)[part] == BEGIN
    # A step begins when the one before it ended or later, and takes some time.
    follows = (begins[1:] != begins[:-1]) & (times[1:] - times[:-1] + begins[1:] > 0)
    follows &= steps[1:] - steps[:-1] == begins[1:]
    follows &= is_step[1:] & is_step[:-1]
    cuts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(some)]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        if stop - start < 2 * LEAST_STEPS:
            continue
        start += not begins[start]
        stop -= bool(begins[stop - 1])
        if abs(spans.step[some[start]]) < SANE_NS:
            yield some[start:stop]
