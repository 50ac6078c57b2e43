"""An exact partition of a stretch of time: every nanosecond has one class.

Two columns hold it, nine bytes an interval; neighbours of one class are one interval.  Running
totals are kept at marks, so that any window is summed without walking through it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runwatch.vectors import column, numpy

if TYPE_CHECKING:
    from runwatch.vectors import Column

MARK_EVERY: Final = 512


class Interval(NamedTuple):
    start_ns: int
    end_ns: int
    spent: int


class Timeline:
    """Grows at its end only."""

    __slots__ = ("classes", "ends", "start_ns", "_marks", "_running", "_since")

    def __init__(self, start_ns: int) -> None:
        self.start_ns = self._since = start_ns
        self.ends = array("q")
        self.classes = array("B")
        self._running: list[int] = []
        """The time in each class in all intervals but the last, which may still grow."""
        self._marks: list[list[int]] = []
        """`_running` when interval 0, 512, 1024 … had just begun."""

    @property
    def end_ns(self) -> int:
        return self.ends[-1] if self.ends else self.start_ns

    def __len__(self) -> int:
        return len(self.ends)

    def append(self, end_ns: int, spent: int) -> None:
        """Extends the timeline to `end_ns` in class `spent`; an `end_ns` that is not ahead adds
        nothing."""
        ends = self.ends
        if ends:
            last = ends[-1]
            if end_ns <= last:
                return
            if self.classes[-1] == spent:
                ends[-1] = end_ns
                return
            self._running[self.classes[-1]] += last - self._since
            self._since = last
        elif end_ns <= self.start_ns:
            return
        self._widen(spent)
        if not len(ends) % MARK_EVERY:
            self._marks.append(self._running.copy())
        ends.append(end_ns)
        self.classes.append(spent)

    def _widen(self, spent: int) -> None:
        if spent >= len(self._running):
            self._running.extend([0] * (spent + 1 - len(self._running)))

    def extend(self, ends: Column, classes: Column) -> None:
        """Appends many intervals; each ends after the one before it."""
        np = numpy()
        last = np.ones(len(classes), bool)
        np.not_equal(classes[1:], classes[:-1], out=last[:-1])  # neighbours of one class are one
        ends, classes = ends[last], classes[last]
        self.append(int(ends[0]), int(classes[0]))  # the first may continue the last interval
        ends, classes = ends[1:], classes[1:]
        if not len(ends):
            return
        before = np.concatenate((np.array(self.classes[-1:], classes.dtype), classes[:-1]))
        self._widen(int(classes.max()))
        starts = np.concatenate((np.array([self._since, self.end_ns], np.int64), ends[:-1]))
        lengths = starts[1:] - starts[:-1]
        # Row i has the length of the interval before i: the totals before a mark include its row.
        marks = range(-len(self.ends) % MARK_EVERY, len(ends), MARK_EVERY)
        cuts = [0, *(at + 1 for at in marks if at + 1 < len(ends))]
        sums: dict[int, list[int]] = {}
        for spent in np.bincount(before).nonzero()[0].tolist():
            sums[spent] = np.add.reduceat(lengths * (before == spent), cuts).tolist()
        for part in range(len(cuts)):
            for spent, some in sums.items():
                self._running[spent] += some[part]
            if part < len(marks):
                self._marks.append(self._running.copy())
        self._since = int(starts[-1])
        self.ends.frombytes(ends.tobytes())
        self.classes.frombytes(classes.astype(np.uint8).tobytes())

    # ── questions ─────────────────────────────────────────────────────────────────────────────

    def add_totals(self, start_ns: int, end_ns: int, totals: list[int], sign: int = 1) -> None:
        """Add to `totals` the time in each class within [start_ns, end_ns)."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        if start_ns < end_ns:
            self._add_until(end_ns, totals, sign)
            self._add_until(start_ns, totals, -sign)

    def _add_until(self, end_ns: int, totals: list[int], sign: int) -> None:
        if end_ns <= self.start_ns:
            return
        ends, classes = self.ends, self.classes
        at = bisect_right(ends, end_ns)  # the interval that end_ns lies in, if any
        mark = min(at, len(ends) - 1) // MARK_EVERY
        for spent, ns in enumerate(self._marks[mark]):
            totals[spent] += sign * ns
        first = mark * MARK_EVERY
        since = ends[first - 1] if first else self.start_ns
        for i in range(first, at):
            totals[classes[i]] += sign * (ends[i] - since)
            since = ends[i]
        if at < len(ends):
            totals[classes[at]] += sign * (end_ns - since)

    def intervals(self, start_ns: int, end_ns: int) -> Iterator[Interval]:
        """The intervals within [start_ns, end_ns), clipped to it."""
        since = max(start_ns, self.start_ns)
        for i in range(bisect_right(self.ends, since), len(self.ends)):
            until = min(self.ends[i], end_ns)
            if until <= since:
                return
            yield Interval(since, until, self.classes[i])
            since = until

    def of_class(
        self, spent: int, start_ns: int, end_ns: int, least_ns: int = 0
    ) -> Iterator[Interval]:
        """The intervals of one class that last `least_ns` or longer; the others are skipped."""
        classes = self._lasting(spent, least_ns) if least_ns else self.classes.tobytes()
        at = bisect_right(self.ends, max(start_ns, self.start_ns))
        while (at := classes.find(spent, at)) >= 0:
            since = max(start_ns, self.ends[at - 1] if at else self.start_ns)
            until = min(self.ends[at], end_ns)
            if until <= since:
                return
            if until - since >= least_ns:
                yield Interval(since, until, spent)
            at += 1

    def _lasting(self, spent: int, least_ns: int) -> bytes:
        """The classes, with shorter intervals of this one counted as another."""
        np = numpy()
        if np is None or not self.ends:
            return self.classes.tobytes()
        lengths = np.diff(column(self.ends), prepend=self.start_ns)
        other = np.uint8(spent ^ 1)
        classes: bytes = np.where(lengths < least_ns, other, self.classes).tobytes()
        return classes

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        """The running totals are saved too: adding up millions of intervals again takes a
        second."""
        width = len(self._running)
        marks = array("q")
        for mark in self._marks:
            marks.extend([*mark, *[0] * (width - len(mark))])
        return {
            "start": self.start_ns,
            "since": self._since,
            "ends": self.ends,
            "classes": self.classes,
            "running": self._running,
            "marks": marks,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Timeline:
        timeline = cls(state["start"])
        timeline._since = state["since"]
        timeline.ends, timeline.classes = state["ends"][:], state["classes"][:]
        timeline._running = list(state["running"])
        width, marks = len(timeline._running), state["marks"]
        timeline._marks = [
            marks[at : at + width].tolist() for at in range(0, len(marks), width or 1)
        ]
        return timeline
