"""A job's log in memory: steps in two columns, all other entries in three.

A step is a time and a number.  Every other entry is a code, a time, and how many steps were
recorded before it; the few that say more have a note.  An entry that is there already, field for
field, is not taken again, so reading a stretch of the log twice does no harm.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any, Final

from runwatch.compat.goodput.calculator.codes import (
    LOAD_END,
    LOAD_START,
    SLICES,
    STEP,
    TYPED,
    Checkpoint,
    Item,
    Note,
    SliceCounts,
    item_of,
)
from runwatch.compat.goodput.calculator.moments import TIES, Moments
from runwatch.compat.goodput.calculator.stretch import SIMPLE, Stretch
from runwatch.compat.goodput.fields import (
    _DATA_LOADING_END_TIME,
    _DATA_LOADING_START_TIME,
    _STEP_COUNT,
    _STEP_START_TIME,
)
from runwatch.compat.goodput.goodput_utils import LATEST_SECONDS, is_seconds

if TYPE_CHECKING:
    from runwatch.compat.goodput.log.entries import Columns

_ODD: Final = (TypeError, LookupError, AttributeError, OverflowError)
_STEPS: Final = bytes([STEP])
_LOAD: Final = bytes([LOAD_START, LOAD_END])
_USUAL: Final = re.compile(rb"(?:%b%b){2,}|%b{2,}" % (_LOAD, _STEPS, _STEPS))
"""What the usual loop records: a load and a step in turn, or steps alone."""
_IS_STEP: Final = bytes(code == STEP for code in range(256))
_IS_OTHER: Final = bytes(code != STEP for code in range(256))


class History:
    """Step i began at `steps.times[i]` and has the number `numbers[i]`.  Of the others, entry k is
    `codes[k]` at `others.times[k]`, after the first `places[k]` steps."""

    def __init__(self) -> None:
        self.steps = Moments()
        self.numbers: array[int] = array("q")
        self.others = Moments()
        self.codes = bytearray()
        self.places: array[int] = array("I")
        self.note_at: array[int] = array("q")
        """Which of the others say more than a time, and …"""
        self.note_row: array[int] = array("q")
        """… which row: of `words` for those with a type, else of `checkpoints` or `slices`."""
        self.words: list[str] = []
        self.checkpoints = _Checkpoints()
        self.slices: list[SliceCounts] = []
        self._word_rows: dict[str, int] = {}
        self._late: dict[Item, int] = {}

    def __len__(self) -> int:
        return len(self.numbers) + len(self.codes)

    @property
    def newest(self) -> float:
        """The latest time of all."""
        return max(self.steps.newest, self.others.newest)

    # ── taking entries ────────────────────────────────────────────────────────────────────────

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Those that state a time and are not there yet."""
        steps, others, numbers = self.steps, self.others, self.numbers
        put_step, put_number = steps.times.append, numbers.append
        put_other, put_code = others.times.append, self.codes.append
        put_place = self.places.append
        last_step, last_other, count = steps.newest, others.newest, len(numbers)
        for entry in entries:
            # Quick for the entries that every step has; the others take longer.
            try:
                if (time := entry.get(_STEP_START_TIME)) is not None:
                    if last_step < time < LATEST_SECONDS:
                        put_number(entry[_STEP_COUNT])
                        put_step(time)
                        last_step = time
                        count += 1
                        continue
                elif (time := entry.get(_DATA_LOADING_START_TIME)) is not None:
                    if last_other < time < LATEST_SECONDS:
                        put_other(time)
                        put_code(LOAD_START)
                        put_place(count)
                        last_other = time
                        continue
                elif (
                    time := entry.get(_DATA_LOADING_END_TIME)
                ) is not None and last_other < time < LATEST_SECONDS:
                    put_other(time)
                    put_code(LOAD_END)
                    put_place(count)
                    last_other = time
                    continue
            except _ODD:
                pass  # odd in some way: looked at closely
            self._grown()
            if (item := item_of(entry)) is not None:
                self.add_item(item)
            last_step, last_other, count = steps.newest, others.newest, len(numbers)
        self._grown()

    def _grown(self) -> None:
        self.steps.grown()
        self.others.grown()

    def add_columns(self, columns: Columns) -> None:
        """Entries as a journal's reader gives them, without an object for each."""
        stretch = Stretch(columns)
        start = 0
        for row, _, entry in columns.others:
            if start < row:
                self._add_rows(stretch, start, row)
            if (item := item_of(entry)) is not None:
                self.add_item(item)
            start = row
        self._add_rows(stretch, start, len(columns.code))

    def _add_rows(self, stretch: Stretch, at: int, end: int) -> None:
        while at < end:
            until = min(stretch.smooth_until(at), end)
            if self._is_next(stretch, at) and stretch.times[until - 1] < LATEST_SECONDS:
                at = self._add_smooth(stretch, at, until)
            else:
                if is_seconds(stretch.times[at]):
                    self.add_item(stretch.item(at))
                at += 1

    def _is_next(self, stretch: Stretch, row: int) -> bool:
        return stretch.codes[row] in SIMPLE and self.newest < stretch.times[row]

    def _add_smooth(self, stretch: Stretch, at: int, until: int) -> int:
        """Rows of growing times, all later than the history; returns the next row."""
        usual = _USUAL.search(stretch.codes, at, until)
        if usual is not None:
            until = usual.end() if usual.start() == at else usual.start()
        rows = slice(at, until)
        codes, times, numbers = stretch.codes[rows], stretch.times[rows], stretch.steps[rows]
        if usual is not None and usual.start() == at:
            if codes[0] == STEP:
                self._extend(times, numbers)
            else:
                self._add_loop(times, numbers[2::3])
        else:
            is_step, is_other = codes.translate(_IS_STEP), codes.translate(_IS_OTHER)
            steps_before = accumulate(is_step, initial=len(self.numbers))
            self.places.extend(array("I", compress(steps_before, is_other)))
            self.codes += codes.translate(None, _STEPS)
            self.others.times.extend(array("d", compress(times, is_other)))
            self._extend(
                array("d", compress(times, is_step)), array("q", compress(numbers, is_step))
            )
        return until

    def _add_loop(self, times: array[float], numbers: array[int]) -> None:
        """A load's start and its end, then a step, again and again."""
        first, count = len(self.numbers), len(numbers)
        places = array("I", bytes(2 * count * self.places.itemsize))
        places[::2] = places[1::2] = array("I", range(first, first + count))
        self.places.extend(places)
        self.codes += _LOAD * count
        steps = times[2::3]
        del times[2::3]
        self.others.times.extend(times)
        self._extend(steps, numbers)

    def _extend(self, times: array[float], numbers: array[int]) -> None:
        self.steps.times.extend(times)
        self.numbers.extend(numbers)
        self._grown()

    def add_item(self, item: Item) -> None:
        code, time, note = item
        column = self.steps if code == STEP else self.others
        if time <= column.newest and self._row_of(item) is not None:
            return
        if code == STEP:
            assert isinstance(note, int)
            self.numbers.append(note)
        else:
            if note is not None:
                self.note_at.append(len(self.codes))
                self.note_row.append(self._new_row(note))
            self.codes.append(code)
            self.places.append(len(self.numbers))
        if column.append(time):
            self._late[item] = len(column) - 1

    def _new_row(self, note: Note) -> int:
        if isinstance(note, Checkpoint):
            return self.checkpoints.append(note)
        if isinstance(note, str):
            row = self._word_rows.setdefault(note, len(self.words))
            if row == len(self.words):
                self.words.append(note)
            return row
        assert isinstance(note, SliceCounts)
        self.slices.append(note)
        return len(self.slices) - 1

    def insert(self, index: int, items: Iterable[Item]) -> None:
        """Put what came late in its place before entry `index` of all."""
        after = list(self.items(index))
        self._cut(index)
        for item in (*items, *after):
            self.add_item(item)

    def _cut(self, index: int) -> None:
        """Forget the entries from `index` on."""
        other = self._others_before(index)
        step = index - other
        self.steps.cut(step)
        self.others.cut(other)
        del self.numbers[step:], self.codes[other:], self.places[other:]
        end = bisect_left(self.note_at, other)
        del self.note_at[end:], self.note_row[end:]
        self._late = {
            item: row
            for item, row in self._late.items()
            if row < (step if item.code == STEP else other)
        }

    # ── finding entries, and giving them back ─────────────────────────────────────────────────

    def find(self, item: Item) -> int | None:
        """The place, among all entries, of the one that equals `item`."""
        row = self._row_of(item)
        if row is None:
            return None
        return self._index_of_step(row) if item.code == STEP else self._index_of_other(row)

    def _index_of_step(self, row: int) -> int:
        """Its place among all entries; behind the last, if there is no such step."""
        return row + bisect_right(self.places, row)

    def _index_of_other(self, row: int) -> int:
        return row + (self.places[row] if row < len(self.places) else len(self.numbers))

    def _row_of(self, item: Item) -> int | None:
        known = self._late.get(item)
        if known is not None:
            return known
        is_step = item.code == STEP
        column, says = (self.steps, self._step) if is_step else (self.others, self._other)
        first = column.first_from(item.time)
        for row in range(first, min(first + TIES, len(column))):
            if column.times[row] != item.time:
                break
            if says(row) == item:
                return row
        return None

    def _step(self, row: int) -> Item:
        return Item(STEP, self.steps.times[row], self.numbers[row])

    def _other(self, row: int) -> Item:
        code, time = self.codes[row], self.others.times[row]
        place = bisect_left(self.note_at, row)
        if place == len(self.note_at) or self.note_at[place] != row:
            return Item(code, time)
        return Item(code, time, self._note(code, self.note_row[place]))

    def word(self, row: int) -> str:
        """The type of the event that entry `row` of the others is about."""
        return self.words[self._note_row(row)]

    def checkpoint(self, row: int) -> tuple[str, float]:
        """(key, seconds) of the checkpoint that entry `row` of the others is about."""
        return self.checkpoints.took(self._note_row(row))

    def _note_row(self, row: int) -> int:
        return self.note_row[bisect_left(self.note_at, row)]

    def _note(self, code: int, row: int) -> Note:
        if code in TYPED:
            return self.words[row]
        return self.slices[row] if code == SLICES else self.checkpoints[row]

    def item(self, index: int) -> Item:
        return next(self.items(index, index + 1))

    def items(self, start: int = 0, end: int | None = None) -> Iterator[Item]:
        """All entries of a stretch, in the order of the log."""
        other = self._others_before(start)
        step = start - other
        for _ in range(start, len(self) if end is None else end):
            if other < len(self.places) and self.places[other] <= step:
                yield self._other(other)
                other += 1
            else:
                yield self._step(step)
                step += 1

    def _others_before(self, index: int) -> int:
        """How many of the first `index` entries are no steps."""
        return bisect_left(range(len(self.places)), index, key=lambda row: self.places[row] + row)

    def between(self, after: float, until: float) -> History:
        """The entries later than `after` and not later than `until`, in the same order."""
        step, other = self.steps.first_after(after), self.others.first_after(after)
        if self.steps.is_in_order_from(step) and self.others.is_in_order_from(other):
            ends = self.steps.first_after(until), self.others.first_after(until)
            return self._copy(slice(step, ends[0]), slice(other, ends[1]))
        part = History()
        for item in self.items(min(self._index_of_step(step), self._index_of_other(other))):
            if after < item.time <= until:
                part.add_item(item)
        return part

    def _copy(self, steps: slice, others: slice) -> History:
        """Entries that are in order of time; what notes point to is shared."""
        part = History()
        part.steps.times, part.numbers = self.steps.times[steps], self.numbers[steps]
        part.others.times, part.codes = self.others.times[others], self.codes[others]
        first, count = steps.start, len(part.numbers)
        part.places.extend([min(max(p - first, 0), count) for p in self.places[others]])
        low, high = (bisect_left(self.note_at, row) for row in (others.start, others.stop))
        part.note_at.extend([at - others.start for at in self.note_at[low:high]])
        part.note_row = self.note_row[low:high]
        part.words, part.checkpoints, part.slices = self.words, self.checkpoints, self.slices
        part._grown()
        return part


class _Checkpoints:
    """Rows of `Checkpoint`, in columns."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._known: dict[str, str] = {}
        self._starts: array[float] = array("d")
        self._seconds: array[float] = array("d")
        self._fingerprints: array[int] = array("q")

    def append(self, checkpoint: Checkpoint) -> int:
        key, start, seconds, fingerprint = checkpoint
        self._keys.append(self._known.setdefault(key, key))
        self._starts.append(start)
        self._seconds.append(seconds)
        self._fingerprints.append(fingerprint)
        return len(self._keys) - 1

    def took(self, row: int) -> tuple[str, float]:
        """(key, seconds)"""
        return self._keys[row], self._seconds[row]

    def __getitem__(self, row: int) -> Checkpoint:
        return Checkpoint(
            self._keys[row], self._starts[row], self._seconds[row], self._fingerprints[row]
        )
