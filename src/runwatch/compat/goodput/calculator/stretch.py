"""Columns of a log, looked through for rows that do not simply follow from the one before.

Nearly all do: time goes on, and each step has the next number.  What lies between those that do
not can be taken at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import islice, pairwise
from operator import lt
from typing import TYPE_CHECKING, Final, TypeVar

from runwatch.compat.goodput.calculator.codes import PLAIN, STEP, TIME_FIELDS, TYPED, Item, Note
from runwatch.journal.lanes import ROWS, grows, is_count

if TYPE_CHECKING:
    from runwatch.compat.goodput.log.entries import Columns, Mark

N = TypeVar("N", int, float)

SIMPLE: Final = frozenset((*PLAIN, STEP))
"""Codes of entries that say a time, and no more but a step's number."""

_FEW: Final = 256
"""To look through so many numbers one by one is quicker than to compare them at once."""

_IS_SIMPLE: Final = bytes(code in SIMPLE for code in range(256))


class Stretch:
    """Row i has the code `codes[i]`, the time `times[i]` and, if it is a step, `steps[i]`."""

    def __init__(self, columns: Columns) -> None:
        self._kinds = [_kind(mark) for mark in columns.marks]
        self._code = columns.code
        self.codes = self._codes()
        self.times, self.steps = columns.seconds, columns.step
        self._rough = sorted({*self._typed(), *self._set_back()})

    def smooth_until(self, row: int) -> int:
        """The next row that has a type, or is not later than the row before it."""
        place = bisect_right(self._rough, row)
        return self._rough[place] if place < len(self._rough) else len(self.codes)

    def item(self, row: int) -> Item:
        code, note = self._kinds[self._code[row]]
        return Item(code, self.times[row], self.steps[row] if code == STEP else note)

    def _codes(self) -> bytes:
        kinds = [code for code, _ in self._kinds]
        if self._code.typecode == "B":
            return self._code.tobytes().translate(bytes(kinds[:256]).ljust(256, b"\0"))
        return bytes(map(kinds.__getitem__, self._code))

    def _typed(self) -> Iterator[int]:
        return _zeros(self.codes.translate(_IS_SIMPLE))

    def _set_back(self) -> Iterator[int]:
        for start, times in _windows(self.times):
            if not grows(times):
                yield from (start + place for place in _falls(times))


def _zeros(flags: bytes) -> Iterator[int]:
    place = flags.find(0)
    while place >= 0:
        yield place
        place = flags.find(0, place + 1)


def _windows(
    numbers: array[N], start: int = 0, end: int | None = None
) -> Iterator[tuple[int, array[N]]]:
    """A column in pieces with the place where each begins: the last row of the one before."""
    end = len(numbers) if end is None else end
    for begin in range(start, max(end - 1, start), ROWS):
        yield begin, numbers[begin : min(begin + ROWS + 1, end)]


def _falls(numbers: array[N]) -> list[int]:
    """Places of numbers that are not greater than the one before."""
    return [place + 1 for place in _zeros(bytes(map(lt, numbers, islice(numbers, 1, None))))]


def jumps(numbers: array[int], start: int = 0, end: int | None = None) -> list[int]:
    """Places, in order, of numbers that are not one more than the one before; of a part."""
    return [
        begin + place
        for begin, some in _windows(numbers, start, end)
        if len(some) < _FEW or not is_count(some)
        for place in sorted(_jumps(some))
    ]


def _jumps(numbers: array[int]) -> Iterator[int]:
    falls = _falls(numbers)
    yield from falls
    ahead = partial(_ahead, numbers)
    for at, end in pairwise((0, *falls, len(numbers))):
        # Between falls they grow, and so does how far they are ahead of a count.
        while ahead(at) != ahead(end - 1):
            at = bisect_right(range(end), ahead(at), at, end, key=ahead)
            yield at


def _ahead(numbers: array[int], place: int) -> int:
    return numbers[place] - place


def _kind(mark: Mark) -> tuple[int, Note]:
    code = TIME_FIELDS[mark.field]
    return code, (mark.type or "unknown") if code in TYPED else None
