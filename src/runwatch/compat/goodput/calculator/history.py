"""A job's log in memory: nine bytes for an entry, in the order in which the log gave them.

Entries become columns: a code and a time each.  A step says its number only where it does not
follow from the step before it, and the few entries that say more than a time have a note.  An
entry that is there already, field for field, is not taken again, so reading a stretch of the log
twice does no harm.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import inf
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
from runwatch.compat.goodput.calculator.stretch import SIMPLE, Stretch
from runwatch.compat.goodput.fields import (
    _DATA_LOADING_END_TIME,
    _DATA_LOADING_START_TIME,
    _STEP_COUNT,
    _STEP_START_TIME,
)
from runwatch.compat.goodput.figures import LATEST_SECONDS, is_seconds

if TYPE_CHECKING:
    from runwatch.compat.goodput.log.entries import Columns

_TIES: Final = 8
"""So many entries of one instant are looked through for a duplicate; more are kept by name."""

_NOWHERE: Final = -1


class History:
    """`codes[i]` and `times[i]` are entry i."""

    def __init__(self) -> None:
        self.codes = bytearray()
        self.times: array[float] = array("d")
        self.break_at: array[int] = array("q")
        """Steps whose number is not one more than that of the step before, and …"""
        self.break_number: array[int] = array("q")
        self.back_at: array[int] = array("q")
        """Steps that seem to begin before the step before them: a clock was set back …"""
        self.back_seconds: array[float] = array("d")
        """… by so much."""
        self.note_at: array[int] = array("q")
        """Entries, no steps, that say more than a time, and …"""
        self.note_row: array[int] = array("q")
        """… which row: of `words` for those with a type, else of `checkpoints` or `slices`."""
        self.words: list[str] = []
        self.checkpoints = _Checkpoints()
        self.slices: list[SliceCounts] = []
        self._word_rows: dict[str, int] = {}
        # An entry is late if a later time came before it.  All the others' times are in order.
        self._late_at: array[int] = array("q")
        self._late_below: array[int] = array("q")
        """The entry whose time was the latest when a late one came."""
        self._late: dict[Item, int] = {}
        self._newest = -inf
        self._newest_at = _NOWHERE
        self._following: int | None = None
        self._hint = (_NOWHERE, 0)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def newest(self) -> float:
        """The latest time of all."""
        return self._newest

    # ── taking entries ────────────────────────────────────────────────────────────────────────

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Those that state a time and are not there yet."""
        put_code, put_time = self.codes.append, self.times.append
        newest, following = self._newest, self._following
        for entry in entries:
            # A few look-ups for what comes once or thrice in every step; the rest takes its time.
            try:
                if (time := entry.get(_STEP_START_TIME)) is not None:
                    if (
                        newest < time < LATEST_SECONDS
                        and entry[_STEP_COUNT] == following
                        and following is not None
                    ):
                        put_time(time)
                        put_code(STEP)
                        newest = time
                        following += 1
                        continue
                elif (time := entry.get(_DATA_LOADING_START_TIME)) is not None:
                    if newest < time < LATEST_SECONDS:
                        put_time(time)
                        put_code(LOAD_START)
                        newest = time
                        continue
                elif (
                    time := entry.get(_DATA_LOADING_END_TIME)
                ) is not None and newest < time < LATEST_SECONDS:
                    put_time(time)
                    put_code(LOAD_END)
                    newest = time
                    continue
            except (TypeError, LookupError, AttributeError):
                pass  # odd in some way: looked at closely
            self._catch_up(newest, following)
            if (item := item_of(entry)) is not None:
                self.add_item(item)
            newest, following = self._newest, self._following
        self._catch_up(newest, following)

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
            if self._add_smooth(stretch, at, until):
                at = until
            else:
                if is_seconds(stretch.times[at]):
                    self.add_item(stretch.item(at))
                at += 1

    def _add_smooth(self, stretch: Stretch, at: int, until: int) -> bool:
        """At once, if the first of these rows follows from what is there; else nothing is added."""
        codes, times, following = stretch.codes, stretch.times, self._following
        if codes[at] not in SIMPLE or not self._newest < times[at]:
            return False
        if not times[until - 1] < LATEST_SECONDS:
            return False
        if (step := codes.find(STEP, at, until)) >= 0:
            if stretch.steps[step] != following:
                return False
            following = stretch.steps[codes.rfind(STEP, at, until)] + 1
        self.codes += codes[at:until]
        self.times.extend(times[at:until])
        self._catch_up(times[until - 1], following)
        return True

    def _catch_up(self, newest: float, following: int | None) -> None:
        if newest > self._newest:
            self._newest, self._newest_at = newest, len(self.times) - 1
        self._following = following

    def add_item(self, item: Item) -> None:
        code, time, note = item
        index = len(self.codes)
        if time <= self._newest:
            if self.find(item) is not None:
                return
            if time < self._newest or not self._is_few_of_an_instant(time):
                self._late_at.append(index)
                self._late_below.append(self._newest_at)
                self._late[item] = index
        if code == STEP:
            assert isinstance(note, int)
            self._add_step(index, time, note)
        elif note is not None:
            self.note_at.append(index)
            self.note_row.append(self._row(note))
        self.codes.append(code)
        self.times.append(time)
        if time > self._newest:
            self._newest, self._newest_at = time, index

    def _add_step(self, index: int, time: float, number: int) -> None:
        if number != self._following:
            self.break_at.append(index)
            self.break_number.append(number)
        if time < self._newest and (before := self.codes.rfind(STEP)) >= 0:
            back = self.times[before] - time
            if back > 0:
                self.back_at.append(index)
                self.back_seconds.append(back)
        self._following = number + 1

    def _is_few_of_an_instant(self, time: float) -> bool:
        """Whether all since the newest, and not many, are of its time."""
        if len(self.times) - self._newest_at >= _TIES:
            return False
        return all(other == time for other in self.times[self._newest_at :])

    def _row(self, note: Note) -> int:
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
        """Put what came late in its place before entry `index`."""
        after = list(self.items(index))
        self._cut(index)
        for item in (*items, *after):
            self.add_item(item)

    def _cut(self, index: int) -> None:
        """Forget the entries from `index` on."""
        del self.codes[index:], self.times[index:]
        for at, *others in (
            (self.break_at, self.break_number),
            (self.back_at, self.back_seconds),
            (self.note_at, self.note_row),
            (self._late_at, self._late_below),
        ):
            end = bisect_left(at, index)
            for column in (at, *others):
                del column[end:]
        self._late = {item: at for item, at in self._late.items() if at < index}
        self._hint = (_NOWHERE, 0)
        self._newest_at = self._holder(index - 1) if index else _NOWHERE
        self._newest = self.times[self._newest_at] if index else -inf
        last = self.codes.rfind(STEP)
        self._following = self.step_number(last) + 1 if last >= 0 else None

    # ── finding entries ───────────────────────────────────────────────────────────────────────

    def find(self, item: Item) -> int | None:
        """The entry that says exactly this."""
        known = self._late.get(item)
        if known is not None:
            return known
        first = self.first_from(item.time)
        for index in range(first, min(first + _TIES, len(self.times))):
            if self.times[index] != item.time:
                break
            if self.codes[index] == item.code and self.item(index) == item:
                return index
        return None

    def first_from(self, time: float) -> int:
        """The first entry before which all are earlier than `time`, and at or after it."""
        if not self._late_at:
            return bisect_left(self.times, time)
        return bisect_left(range(len(self.times)), time, key=self._height)

    def first_after(self, time: float) -> int:
        if not self._late_at:
            return bisect_right(self.times, time)
        return bisect_right(range(len(self.times)), time, key=self._height)

    def _height(self, index: int) -> float:
        """The latest time up to an entry."""
        return self.times[self._holder(index)]

    def _holder(self, index: int) -> int:
        row = bisect_left(self._late_at, index)
        is_late = row < len(self._late_at) and self._late_at[row] == index
        return self._late_below[row] if is_late else index

    def step_number(self, index: int) -> int:
        """The number of the step that entry `index` is."""
        run = bisect_right(self.break_at, index) - 1
        base, number = self.break_at[run], self.break_number[run]
        near, near_number = self._hint
        if base <= near and abs(near - index) < index - base and self._in_run(run, near):
            base, number = near, near_number
        if base <= index:
            number += self.codes.count(STEP, base, index)
        else:
            number -= self.codes.count(STEP, index, base)
        self._hint = (index, number)
        return number

    def _in_run(self, run: int, index: int) -> bool:
        return run + 1 == len(self.break_at) or index < self.break_at[run + 1]

    def steps_before(self, index: int, count: int) -> int:
        """The entry that is `count` steps before the step `index`."""
        width = count
        while (found := self.codes.count(STEP, max(index - width, 0), index)) < count:
            width *= 2
        low, high = max(index - width, 0), index - count
        # The wanted step is the last place from which `count` steps are left.
        surplus = found - count
        while surplus:
            middle = (low + high + 1) // 2
            passed = self.codes.count(STEP, low, middle)
            if passed <= surplus:
                low, surplus = middle, surplus - passed
            else:
                high = middle - 1
        return self.codes.find(STEP, low)

    # ── giving entries back ───────────────────────────────────────────────────────────────────

    def note(self, index: int) -> int:
        """Which row holds what entry `index` says besides its time."""
        return self.note_row[bisect_left(self.note_at, index)]

    def item(self, index: int) -> Item:
        code, time = self.codes[index], self.times[index]
        if code == STEP:
            return Item(code, time, self.step_number(index))
        place = bisect_left(self.note_at, index)
        if place == len(self.note_at) or self.note_at[place] != index:
            return Item(code, time)
        return Item(code, time, self._note(code, self.note_row[place]))

    def _note(self, code: int, row: int) -> Note:
        if code in TYPED:
            return self.words[row]
        return self.slices[row] if code == SLICES else self.checkpoints[row]

    def items(self, start: int = 0, end: int | None = None) -> Iterator[Item]:
        """Those of a stretch, in order; steps are counted, not looked up."""
        codes, times, breaks = self.codes, self.times, self.break_at
        number, row = None, bisect_left(breaks, start)
        following_break = breaks[row] if row < len(breaks) else _NOWHERE
        for index in range(start, len(codes) if end is None else end):
            if codes[index] != STEP:
                yield self.item(index)
                continue
            if index == following_break:
                number = self.break_number[row]
                row += 1
                following_break = breaks[row] if row < len(breaks) else _NOWHERE
            else:
                number = self.step_number(index) if number is None else number + 1
            yield Item(STEP, times[index], number)

    def between(self, after: float, until: float) -> History:
        """The entries later than `after` and not later than `until`, in the same order."""
        start, end = self.first_after(after), self.first_after(until)
        late = self._late_at[bisect_left(self._late_at, start) :]
        if not late:
            return self._copy(start, end)
        part = History()
        for index in chain(range(start, end), (at for at in late if at >= end)):
            if after < self.times[index] <= until:
                part.add_item(self.item(index))
        return part

    def _copy(self, start: int, end: int) -> History:
        """Entries that are in order of time; what notes point to is shared."""
        part = History()
        part.codes, part.times = self.codes[start:end], self.times[start:end]
        first = part.codes.find(STEP)
        if first >= 0:
            part.break_at.append(first)
            part.break_number.append(self.step_number(start + first))
        low, high = bisect_right(self.break_at, start + first), bisect_left(self.break_at, end)
        part.break_at.extend(at - start for at in self.break_at[low:high])
        part.break_number.extend(self.break_number[low:high])
        low, high = bisect_left(self.note_at, start), bisect_left(self.note_at, end)
        part.note_at.extend(at - start for at in self.note_at[low:high])
        part.note_row = self.note_row[low:high]
        part._newest = max(part.times, default=-inf)
        part.words, part.checkpoints, part.slices = self.words, self.checkpoints, self.slices
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
