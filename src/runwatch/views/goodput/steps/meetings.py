"""The steps of a run, each with the ranks heard so far: as objects, or as rows of columns.

Most steps are plain: all ranks just did them, and waited for data at most.  Plain steps are rows of
columns, so that a rank with a thousand steps joins at once.  Other steps are kept as objects.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from runwatch.vectors import numpy
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.steps.cells import Cell, Cells
from runwatch.views.goodput.steps.strides import Strides, waited_since
from runwatch.views.goodput.steps.track import Piece, Stride

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Table = npt.NDArray[np.int64]

At = tuple[int, int]
"""Generation and step."""
BEYOND: Final = 1 << 62
MOST_ROWS: Final = 1 << 17
"""Ranks that are further apart than this meet as objects."""
_BEGIN, _BEGUN_LAST, _WAIT, _END, _ENDED_LAST, _BEGUN_FIRST, _ENDED_FIRST, _RANKS = range(8)
_NOBODY: Final = (-BEYOND, BEYOND, 0, -BEYOND, BEYOND, BEYOND, BEYOND, 0)
"""Marks a row that no rank has joined yet."""


@dataclass(slots=True)
class Meeting:
    """One step, with the ranks heard so far."""

    begin_ns: int
    begun_last: int
    gap: list[Piece]
    end_ns: int
    ended_last: int
    inside: list[Piece]
    begun_first_ns: int
    ended_first_ns: int
    ranks: int = 1

    @classmethod
    def of(cls, stride: Stride, rank: int) -> Meeting:
        begin, end = stride.begin_ns, stride.end_ns
        return cls(begin, rank, stride.gap, end, rank, stride.inside, begin, end)

    def join(self, stride: Stride, rank: int) -> None:
        # The lower rank wins a tie, so the order of arrival makes no difference.
        begin, end = stride.begin_ns, stride.end_ns
        if begin > self.begin_ns or (begin == self.begin_ns and rank < self.begun_last):
            self.begin_ns, self.gap, self.begun_last = begin, stride.gap, rank
        if end > self.end_ns or (end == self.end_ns and rank < self.ended_last):
            self.end_ns, self.inside, self.ended_last = end, stride.inside, rank
        if begin < self.begun_first_ns:
            self.begun_first_ns = begin
        if end < self.ended_first_ns:
            self.ended_first_ns = end
        self.ranks += 1

    def merge(self, other: Meeting) -> None:
        """Adds another meeting of the same step."""
        if (other.begin_ns, -other.begun_last) > (self.begin_ns, -self.begun_last):
            self.begin_ns, self.gap = other.begin_ns, other.gap
            self.begun_last = other.begun_last
        if (other.end_ns, -other.ended_last) > (self.end_ns, -self.ended_last):
            self.end_ns, self.inside = other.end_ns, other.inside
            self.ended_last = other.ended_last
        self.begun_first_ns = min(self.begun_first_ns, other.begun_first_ns)
        self.ended_first_ns = min(self.ended_first_ns, other.ended_first_ns)
        self.ranks += other.ranks

    def cell(self, at: At) -> Cell:
        return Cell(*at, self.begin_ns, self.gap, self.end_ns, self.inside, self.ranks)

    @property
    def awaited(self) -> tuple[int, int]:
        """The rank that the others waited for, and how long the first of them waited."""
        began, ended = self.begin_ns - self.begun_first_ns, self.end_ns - self.ended_first_ns
        return (self.begun_last, began) if began >= ended else (self.ended_last, ended)


Awaiting = list[tuple[int, int, int]]
"""Ranks that the others waited for: in how many steps, and how long."""
Taken = tuple[Cell | Cells, Awaiting]


@dataclass(slots=True)
class Meetings(MutableMapping[At, Meeting]):
    """Meetings by generation and step.  A row is returned as a copy: `join` and `merge` change
    it."""

    odd: dict[At, Meeting] = field(default_factory=dict)
    """Steps that are not plain, or of another generation than the rows."""
    generation: int = 0
    first: int = 0
    """The step of the first row."""
    rows: int = 0
    table: Any = None
    """One line for each of the columns above, with room for more rows than there are."""

    def __getitem__(self, at: At) -> Meeting:
        meeting = self.odd.get(at)
        if meeting is None:
            row = self._row(at)
            if row is None:
                raise KeyError(at)
            meeting = self._meeting(row)
        return meeting

    def __setitem__(self, at: At, meeting: Meeting) -> None:
        self._leave(at)
        self.odd[at] = meeting

    def __delitem__(self, at: At) -> None:
        if self.odd.pop(at, None) is None and not self._leave(at):
            raise KeyError(at)

    def __iter__(self) -> Iterator[At]:
        yield from list(self.odd)
        for row in self._present():
            yield self.generation, self.first + row

    def __len__(self) -> int:
        return len(self.odd) + len(self._present())

    # ── joining ───────────────────────────────────────────────────────────────────────────────

    def join(self, generation: int, stride: Stride, rank: int) -> At:
        """A rank did a step."""
        at = generation, stride.step
        meeting = self.odd.get(at)
        if meeting is not None:
            meeting.join(stride, rank)
        elif not self._join_row(at, stride, rank):
            meeting = self.get(at)
            if meeting is None:
                self[at] = Meeting.of(stride, rank)
            else:
                meeting.join(stride, rank)
                self[at] = meeting
        return at

    def merge(self, at: At, meeting: Meeting) -> None:
        known = self.get(at)
        if known is not None:
            known.merge(meeting)
        self[at] = known or meeting

    def join_all(self, generation: int, strides: Strides, rank: int) -> None:
        """A rank did all these steps; the same as `join` for each."""
        begun = 0
        for step in [*self._odd_between(generation, strides), strides.last + 1]:
            until = step - strides.first
            if until > begun:
                self._join_some(generation, strides.between(begun, until), rank)
            if until < len(strides):
                odd = next(strides.between(until, until + 1).each())
                self.odd[generation, step].join(odd, rank)
            begun = until + 1

    def _odd_between(self, generation: int, strides: Strides) -> list[int]:
        first, last = strides.first, strides.last
        if len(self.odd) > len(strides):
            return [step for step in range(first, last + 1) if (generation, step) in self.odd]
        return sorted(s for g, s in self.odd if g == generation and first <= s <= last)

    def _join_some(self, generation: int, strides: Strides, rank: int) -> None:
        if not self._make_room(generation, strides.first, strides.last):
            for stride in strides.each():
                self.join(generation, stride, rank)
            return
        np = numpy()
        start = strides.first - self.first
        table = self.table[:, start : start + len(strides)]
        for times, line, last, more in (
            (strides.begins, _BEGIN, _BEGUN_LAST, ((_WAIT, strides.waits),)),
            (strides.ends, _END, _ENDED_LAST, ()),
        ):
            known = table[line]
            later = (times > known) | ((times == known) & (rank < table[last]))
            np.copyto(known, times, where=later)
            np.copyto(table[last], rank, where=later)
            for other, values in more:
                np.copyto(table[other], values, where=later)
        np.minimum(table[_BEGUN_FIRST], strides.begins, out=table[_BEGUN_FIRST])
        np.minimum(table[_ENDED_FIRST], strides.ends, out=table[_ENDED_FIRST])
        table[_RANKS] += 1

    def _join_row(self, at: At, stride: Stride, rank: int) -> bool:
        """Whether there are rows, and this step is one of them or the next."""
        step = at[1] - self.first
        if not self.rows or at[0] != self.generation or not 0 <= step <= self.rows:
            return False
        wait = None if stride.inside else waited_since(stride.begin_ns, stride.gap)
        sane = -BEYOND < stride.begin_ns <= stride.end_ns < BEYOND
        if wait is None or not sane or not self._make_room(*at, at[1]):
            return False
        row = self.table[:, step]
        begin, last, _, end, ended, begun_first, ended_first, ranks = row.tolist()
        if (stride.begin_ns, -rank) > (begin, -last):
            row[:3] = stride.begin_ns, rank, wait
        if (stride.end_ns, -rank) > (end, -ended):
            row[3:5] = stride.end_ns, rank
        row[5:] = min(begun_first, stride.begin_ns), min(ended_first, stride.end_ns), ranks + 1
        return True

    def _make_room(self, generation: int, first: int, last: int) -> bool:
        """Whether there are rows for these steps now."""
        np = numpy()
        if np is None:
            return False
        if self.rows and self.generation != generation:
            self._let_go()
        if not self.rows:
            self.generation, self.first = generation, first
        begin, end = min(first, self.first), max(last + 1, self.first + self.rows)
        if end - begin > MOST_ROWS:
            return False
        if self.table is None or begin < self.first or end - begin > self.table.shape[1]:
            self.table = self._larger(np, self.first - begin, 2 * (end - begin))
        self.first, self.rows = begin, end - begin
        return True

    def _larger(self, np: Any, before: int, room: int) -> Table:
        table: Table = np.empty((len(_NOBODY), room), np.int64)
        table[:] = np.array(_NOBODY, np.int64)[:, None]
        if self.rows:
            table[:, before : before + self.rows] = self.table[:, : self.rows]
        return table

    # ── rows ──────────────────────────────────────────────────────────────────────────────────

    def _present(self) -> list[int]:
        """Rows that at least one rank joined."""
        if not self.rows:
            return []
        rows: list[int] = self.table[_RANKS, : self.rows].nonzero()[0].tolist()
        return rows

    def _row(self, at: At) -> int | None:
        row = at[1] - self.first
        if at[0] != self.generation or not 0 <= row < self.rows or not self.table[_RANKS, row]:
            return None
        return row

    def _meeting(self, row: int) -> Meeting:
        begin, last, wait, end, ended, *rest = self.table[:, row].tolist()
        gap = [(wait, begin, int(Spent.DATA_LOADING))] if wait < begin else []
        return Meeting(begin, last, gap, end, ended, [], *rest)

    def _leave(self, at: At) -> bool:
        """Turns a row into an object; returns whether it was a row."""
        row = self._row(at)
        if row is not None:
            self.table[:, row] = _NOBODY
        return row is not None

    def _let_go(self) -> None:
        """Turns all rows into objects."""
        for row in self._present():
            self.odd[self.generation, self.first + row] = self._meeting(row)
        self.table[:, : self.rows] = numpy().array(_NOBODY)[:, None]
        self.rows = 0

    # ── leaving ───────────────────────────────────────────────────────────────────────────────

    def taken(self, until: At, most: int = BEYOND) -> list[Taken]:
        """Removes and returns the first steps, in order, up to `until`."""
        taken: list[Taken] = []
        odd = sorted(at for at in self.odd if at <= until)
        while most > 0:
            row = self._first_row(until)
            if row is not None and (not odd or (self.generation, self.first + row) < odd[0]):
                taken.append(self._taken_rows(row, until, odd[0] if odd else None, most))
            elif odd:
                at = odd.pop(0)
                taken.append(_taken(at, self.odd.pop(at)))
            else:
                break
            cells = taken[-1][0]
            most -= 1 if isinstance(cells, Cell) else len(cells)
        return taken

    def _first_row(self, until: At) -> int | None:
        if not self.rows or (self.generation, self.first) > until:
            return None
        joined = self.table[_RANKS, : self.rows] > 0
        row = int(joined.argmax())
        if not joined[row] or (self.generation, self.first + row) > until:
            return None
        return row

    def _taken_rows(self, row: int, until: At, before: At | None, most: int) -> Taken:
        """Consecutive rows from one row on, up to `until` and `before` the next step kept as an
        object."""
        stop = min(self.rows, row + most)
        if until[0] == self.generation:
            stop = min(stop, until[1] + 1 - self.first)
        if before is not None and before[0] == self.generation:
            stop = min(stop, before[1] - self.first)
        missing = (self.table[_RANKS, row:stop] == 0).nonzero()[0]
        if len(missing):
            stop = row + int(missing[0])
        table = self.table[:, row:stop].copy()
        first = self.first + row
        self._drop(stop)
        columns = (table[_BEGIN], table[_WAIT], table[_END], table[_RANKS])
        return Cells(self.generation, first, *columns), _awaiting(table)

    def _drop(self, rows: int) -> None:
        """Removes and returns the first rows; those behind move up."""
        left = self.rows - rows
        self.table[:, :left] = self.table[:, rows : self.rows]
        self.table[:, left : self.rows] = numpy().array(_NOBODY)[:, None]
        self.first, self.rows = self.first + rows, left

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def copy(self) -> Meetings:
        odd = {at: replace(meeting) for at, meeting in self.odd.items()}
        table = self.table[:, : self.rows].copy() if self.rows else None
        return Meetings(odd, self.generation, self.first, self.rows, table)

    def state(self) -> list[list[Any]]:
        return [
            [*at, *(getattr(meeting, name) for name in Meeting.__slots__)]
            for at, meeting in self.items()
        ]

    @classmethod
    def of_state(cls, state: list[list[Any]]) -> Meetings:
        meetings = cls()
        for generation, step, begin, last, gap, end, ended, inside, *rest in state:
            meetings.odd[generation, step] = Meeting(
                begin, last, pieces_of(gap), end, ended, pieces_of(inside), *rest
            )
        return meetings


def pieces_of(saved: Any) -> list[Piece]:
    return [(start, end, spent) for start, end, spent in saved]


def _taken(at: At, meeting: Meeting) -> Taken:
    rank, waited_ns = meeting.awaited
    awaiting = [(rank, 1, waited_ns)] if meeting.ranks > 1 and waited_ns else []
    return meeting.cell(at), awaiting


def _awaiting(table: Table) -> Awaiting:
    """The same as `Meeting.awaited` for each row."""
    np = numpy()
    began, ended = table[_BEGIN] - table[_BEGUN_FIRST], table[_END] - table[_ENDED_FIRST]
    waited = np.maximum(began, ended)
    some = (table[_RANKS] > 1) & (waited > 0)
    who = np.where(began >= ended, table[_BEGUN_LAST], table[_ENDED_LAST])[some]
    ranks, which, steps = np.unique(who, return_inverse=True, return_counts=True)
    total = np.zeros(len(ranks), np.int64)
    np.add.at(total, which, waited[some])
    return list(zip(ranks.tolist(), steps.tolist(), total.tolist(), strict=True))
