"""Arithmetic on a column of 64-bit numbers, as the digits of one large number.

Adding or subtracting two large numbers is one operation for the interpreter, however many digits
they have.  If no digit carries into the next, that one operation works on every row, like a vector
unit, with the standard library alone.  A column in which a digit might carry is done row by row.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from itertools import islice
from operator import lt
from typing import Final

ROWS: Final = 2048
"""Rows per operation: more of them overflow the processor's cache."""

_LITTLE_ENDIAN: Final = sys.byteorder == "little"
_TOP: Final = 1 << 63
_HALF: Final = 1 << 62
_ALL: Final = (1 << 64) - 1


def shifted(numbers: array[int], by: int) -> array[int]:
    """`by` added to each."""
    digits, rows = _digits(numbers), len(numbers)
    if not 0 <= by < _HALF or digits & _each(_TOP | _HALF, rows):
        return array("q", [number + by for number in numbers])
    return array("q", (digits + _each(by, rows)).to_bytes(rows * 8, sys.byteorder))


def is_count(numbers: array[int]) -> bool:
    """Whether each is one more than the one before."""
    if not numbers:
        return True
    first, rows = numbers[0], len(numbers)
    if not 0 <= first < _HALF:
        return list(numbers) == list(range(first, first + rows))
    return _digits(numbers) == _count(rows) + _ones(rows) * first


def grows(numbers: array[int] | array[float]) -> bool:
    """Whether each is greater than the one before."""
    rows = len(numbers) - 1
    if rows < 1:
        return True
    digits = _digits(numbers)
    if not _LITTLE_ENDIAN or digits & _each(_TOP, rows + 1) or numbers[-1] != numbers[-1]:
        return all(map(lt, numbers, islice(numbers, 1, None)))
    # Floats that are not negative sort like their bits.  Each row gets a top bit, and keeps it
    # only if the next row is greater.
    tops, before = _each(_TOP, rows), digits & _each(_ALL, rows)
    return ((digits >> 64) + _each(_TOP - 1, rows) - before) & tops == tops


def _digits(numbers: array[int] | array[float]) -> int:
    return int.from_bytes(numbers, sys.byteorder)


@lru_cache(maxsize=16)
def _ones(rows: int) -> int:
    return _digits(array("q", [1]) * rows)


@lru_cache(maxsize=32)
def _each(number: int, rows: int) -> int:
    """The same number in every row.  Cached: all records of a segment share one clock shift."""
    if rows <= ROWS:  # a column's last rows are any number: cut them from a cached one
        return _each(number, ROWS + 1) >> 64 * (ROWS + 1 - rows)
    return _ones(rows) * number


@lru_cache(maxsize=16)
def _count(rows: int) -> int:
    return _digits(_numbers(max(rows, ROWS + 1))[:rows])


@lru_cache(maxsize=2)
def _numbers(rows: int) -> array[int]:
    return array("q", range(rows))
