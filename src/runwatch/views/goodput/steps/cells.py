"""Steps of a run on their way into the books: one by one, or as columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import TYPE_CHECKING, Any, NamedTuple

from runwatch.vectors import column, numpy
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.judging import Took
from runwatch.views.goodput.steps.strides import SANE_NS, Strides, waited_since
from runwatch.views.goodput.steps.track import Piece

if TYPE_CHECKING:
    from runwatch.vectors import Column


class Cell(NamedTuple):
    """One step of the run, from the begin of its last rank to the end of its last rank."""

    lap: int
    step: int
    begin_ns: int
    gap: list[Piece]
    end_ns: int
    inside: list[Piece]
    ranks: int = 1
    """How many ranks did the step."""


class Cells:
    """Consecutive steps as columns.  Ranks waited only for data before them, and nothing else was
    done in them."""

    __slots__ = ("begins", "ends", "first", "lap", "ranks", "waits")

    def __init__(
        self, lap: int, first: int, begins: Column, waits: Column, ends: Column, ranks: Column
    ) -> None:
        self.lap = lap
        self.first = first
        self.begins = begins
        self.waits = waits
        """Since when the step waited for data; its begin if it did not."""
        self.ends = ends
        self.ranks = ranks

    @classmethod
    def of(cls, strides: Strides) -> Cells:
        ranks = numpy().ones(len(strides), numpy().int64)
        columns = (strides.begins, strides.waits, strides.ends, ranks)
        return cls(strides.lap, strides.first, *columns)

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def last(self) -> int:
        return self.first + len(self) - 1

    def between(self, start: int, stop: int) -> Cells:
        rows = slice(start, stop)
        columns = (self.begins[rows], self.waits[rows], self.ends[rows], self.ranks[rows])
        return Cells(self.lap, self.first + start, *columns)


def claimed_ns(pieces: Iterable[Piece], start: int, end: int) -> int:
    claimed = 0
    for a, b, _ in pieces:
        if a < start:
            a = start
        if b > end:
            b = end
        if b > a:
            claimed += b - a
    return claimed


@dataclass(slots=True)
class Held:
    """Steps that are not booked yet, as columns."""

    laps: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    begins: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    ranks: array[int] = field(default_factory=lambda: array("q"))
    waits: array[int] = field(default_factory=lambda: array("q"))
    """Since when the step waited for data; its begin if it did not, or if the wait is in `gaps`."""
    gaps: dict[int, list[Piece]] = field(default_factory=dict)
    insides: dict[int, list[Piece]] = field(default_factory=dict)
    sane: bool = True
    """Whether all times are small enough to be summed safely."""

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, cell: Cell) -> None:
        at = len(self.steps)
        self._check(cell.begin_ns, cell.end_ns)
        self.laps.append(cell.lap)
        self.steps.append(cell.step)
        self.begins.append(cell.begin_ns)
        self.ends.append(cell.end_ns)
        self.ranks.append(cell.ranks)
        wait = waited_since(cell.begin_ns, cell.gap)
        self.waits.append(cell.begin_ns if wait is None else wait)
        if wait is None:
            self.gaps[at] = cell.gap
        if cell.inside:
            self.insides[at] = cell.inside

    def _check(self, low_ns: int, high_ns: int) -> None:
        self.sane = self.sane and -SANE_NS < low_ns < SANE_NS and -SANE_NS < high_ns < SANE_NS

    def extend(self, lap: int, step: int, times: array[int]) -> None:
        """Adds plain steps from `step` on.  Each lasts until the next time."""
        self._check(times[0], times[-1])
        count = len(times) - 1
        self.laps.extend(array("q", [lap]) * count)
        self.steps.extend(range(step, step + count))
        self.begins.extend(times[:-1])
        self.ends.extend(times[1:])
        self.ranks.extend(array("q", [1]) * count)
        self.waits.extend(times[:-1])

    def extend_with(self, cells: Cells) -> None:
        self.laps.extend(array("q", [cells.lap]) * len(cells))
        for mine, more in (
            (self.steps, numpy().arange(cells.first, cells.first + len(cells))),
            (self.begins, cells.begins),
            (self.ends, cells.ends),
            (self.ranks, cells.ranks),
            (self.waits, cells.waits),
        ):
            mine.frombytes(more.tobytes())

    def gap(self, at: int) -> Sequence[Piece]:
        """The pieces that claim the time before a step."""
        since, begin = self.waits[at], self.begins[at]
        if since < begin:
            return ((since, begin, int(Spent.DATA_LOADING)),)
        return self.gaps.get(at, ())

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self.laps, self.steps, self.begins, self.ends, self.ranks, self.waits

    def drop(self, count: int) -> None:
        for numbers in self._columns:
            del numbers[:count]
        self.gaps = {at - count: pieces for at, pieces in self.gaps.items() if at >= count}
        self.insides = {at - count: pieces for at, pieces in self.insides.items() if at >= count}

    def copy(self) -> Held:
        laps, steps, begins, ends, ranks, waits = (numbers[:] for numbers in self._columns)
        pieces = (dict(self.gaps), dict(self.insides))
        return Held(laps, steps, begins, ends, ranks, waits, *pieces, self.sane)

    def took(self, since_ns: int) -> Took:
        """How long each step took; the one before the first ended at `since_ns`."""
        if self._is_back_to_back(since_ns):
            plain = list(map(sub, self.ends, self.begins))
            return Took(self.steps.tolist(), plain, [0] * len(plain))
        if self.has_columns and abs(since_ns) < SANE_NS:
            return self._took_at_once(since_ns)
        took = Took()
        for at, (step, begin, end) in enumerate(
            zip(self.steps, self.begins, self.ends, strict=True)
        ):
            took.add(step, *self._took(at, since_ns, begin, end))
            since_ns = max(end, begin, since_ns)
        return took

    def _took(self, at: int, since_ns: int, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """The step's own time, and the unclaimed time before it."""
        begin = max(begin_ns, since_ns)
        end = max(end_ns, begin)
        own, rest = end - begin, begin - since_ns
        if rest and (pieces := self.gap(at)):
            rest -= claimed_ns(pieces, since_ns, begin)
        if own and (pieces := self.insides.get(at, ())):
            own -= claimed_ns(pieces, begin, end)
        return own, rest

    @property
    def has_columns(self) -> bool:
        """Whether the steps can be computed as columns."""
        return self.sane and numpy() is not None

    def _took_at_once(self, since_ns: int) -> Took:
        since, begins, ends = self.walked(since_ns, range(len(self)))
        own, rest = (ends - begins).tolist(), self._unclaimed(since, begins).tolist()
        for at in self.odd:
            edges = (int(since[at]), self.begins[at], self.ends[at])
            own[at], rest[at] = self._took(at, *edges)
        return Took(self.steps.tolist(), own, rest)

    @property
    def odd(self) -> set[int]:
        """Steps with something other than waits for data before or in them."""
        return {*self.gaps, *self.insides}

    def walked(self, since_ns: int, rows: range) -> tuple[Column, Column, Column]:
        """Since when each step is the run's, where it began and where it ended; times never go
        back."""
        np = numpy()
        some = slice(rows.start, rows.stop)
        begins, ends = column(self.begins)[some], column(self.ends)[some]
        done = np.maximum.accumulate(
            np.concatenate((np.array([since_ns], np.int64), np.maximum(begins, ends)))
        )
        since = done[:-1]
        return since, np.maximum(begins, since), done[1:]

    def _unclaimed(self, since: Column, begins: Column) -> Column:
        np = numpy()
        waited = np.maximum(column(self.begins) - np.maximum(column(self.waits), since), 0)
        unclaimed: Column = begins - since - waited
        return unclaimed

    def _is_back_to_back(self, since_ns: int) -> bool:
        """Whether each step begins where the one before it ended, and nothing else is known."""
        if self.gaps or self.insides or self.begins[0] != since_ns or self.waits != self.begins:
            return False
        return self.begins[1:] == self.ends[:-1] and self.ends[0] >= since_ns

    def state(self) -> list[Any]:
        pieces = (list(self.gaps.items()), list(self.insides.items()))
        return [*self._columns, *pieces, self.sane]

    @classmethod
    def of_state(cls, state: Sequence[Any]) -> Held:
        laps, steps, begins, ends, ranks, waits = (array("q", numbers) for numbers in state[:6])
        gaps, insides = ({at: [tuple(p) for p in pieces] for at, pieces in s} for s in state[6:8])
        return cls(laps, steps, begins, ends, ranks, waits, gaps, insides, state[8])
