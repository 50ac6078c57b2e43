"""Reads protobuf's wire format from a file: fields as ranges, runs of messages as columns.

A message is a sequence of (tag, value); tag = number << 3 | type; type 0 is a varint, 1 and 5 are
eight and four bytes, 2 is a length and that many bytes.  Groups (3, 4) are refused.  Every range is
checked against the range around it, so reading always advances and always ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runwatch.traces.intervals import Ints
from runwatch.traces.opening import BadTrace

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_LONGEST_VARINT: Final = 10
_AHEAD: Final = 64 << 10
_BLOCK: Final = 4 << 20
_CHUNK: Final = 2048
_LONGEST_MESSAGE: Final = 64 << 20
_LARGEST: Final = (1 << 63) - 1
_TOP_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_LOW_BITS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
_JOINS: Final = tuple(
    (np.uint64(shift), np.uint64(kept), np.uint64(moved))
    for shift, kept, moved in (
        (1, 0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00),
        (2, 0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000),
        (4, 0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000),
    )
)

Words = NDArray[np.uint64]


class Range(NamedTuple):
    begin: int
    end: int


class Field(NamedTuple):
    number: int
    type: int
    value: int
    """The unsigned value of a varint or fixed field."""
    range: Range
    """The bytes of a length-delimited field."""
    at: int


class Wire:
    """A seekable file, read in pieces."""

    def __init__(self, name: str, file: BinaryIO, size: int) -> None:
        self._name = name
        self._file = file
        self.whole = Range(0, size)
        self._buffer = b""
        self._begin = 0

    def fields(self, inside: Range) -> Iterator[Field]:
        position = inside.begin
        while position < inside.end:
            field = self.field(position, inside.end)
            yield field
            position = field.range.end

    def field(self, position: int, end: int) -> Field:
        at = position
        tag, position = self._varint(position, end)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise self.bad(at, f"field number {number}")
        if kind == VARINT:
            value, after = self._varint(position, end)
            return Field(number, kind, value, Range(position, after), at)
        if kind == BYTES:
            length, position = self._varint(position, end)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise self.bad(at, f"wire type {kind}")
        if length > end - position:
            raise self.bad(at, f"{length:,} bytes announced, {end - position:,} left")
        value = 0 if kind == BYTES else int.from_bytes(self.take(position, length), "little")
        return Field(number, kind, value, Range(position, position + length), at)

    def text(self, where: Range, longest: int = 4096) -> str:
        size = min(where.end - where.begin, longest)
        return self.take(where.begin, size).decode("utf-8", "replace")

    def take(self, position: int, size: int) -> bytes:
        if size > _AHEAD:
            return self._read(position, size)
        offset = position - self._begin
        if offset < 0 or offset + size > len(self._buffer):
            self._buffer, self._begin, offset = self._read(position, _AHEAD), position, 0
        return self._buffer[offset : offset + size]

    def bad(self, at: int, what: str) -> BadTrace:
        return BadTrace(
            f"{self._name}: at byte {at:,}: {what}; damaged, truncated or not an XSpace"
        )

    def _read(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        offset = position - self._begin
        if offset < 0 or offset + _LONGEST_VARINT > len(self._buffer):
            self._buffer, self._begin, offset = self._read(position, _AHEAD), position, 0
        value = shift = 0
        for byte in self._buffer[offset : offset + min(_LONGEST_VARINT, end - position)]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value, position + shift // 7
        raise self.bad(position, "a varint without an end")

    # ── runs of one repeated message ───────────────────────────────────────────────────────────

    def runs(self, position: int, end: int, tag: int) -> Iterator[tuple[Messages, int]]:
        """Blocks of consecutive messages with this one-byte tag, from `position` on; each with the
        position after it."""
        block = _BLOCK
        while position < end:
            size = min(block, end - position)
            data = self._read(position, size)
            begin, finish, after = _walk(data, tag)
            if len(begin):
                yield Messages(data, position, begin, finish), position + after
            position += after
            if after < len(data) and data[after] != tag or position >= end:
                return
            if len(begin):
                block = _BLOCK
            elif size < end - position and block < _LONGEST_MESSAGE:
                block *= 4  # one message is longer than the block
            else:
                raise self.bad(position, "a message is too long, or longer than its parent")


class Messages:
    """Some messages of one kind, all in memory."""

    def __init__(self, data: bytes, offset: int, begin: Ints, end: Ints) -> None:
        self.offset = offset
        self.begin = begin
        self.end = end
        # The eight bytes at every position, as one number each.
        self._raw = np.frombuffer(data + bytes(32), np.uint8)
        words = np.ndarray(len(data) + 24, "<u8", self._raw, strides=(1,))
        self._words: Words = words

    def range(self, message: int) -> Range:
        return Range(self.offset + int(self.begin[message]), self.offset + int(self.end[message]))

    def body(self, message: int) -> bytes:
        return self._raw[self.begin[message] : self.end[message]].tobytes()

    def leading(self) -> tuple[Ints, Ints, Ints] | int:
        """Fields 1, 2 and 3 of every message, all varints, 0 if absent; or the number of a message
        that cannot be read.

        Writers put fields in order.  Messages that lack field 2, or in which something other than
        field 4 follows these three, are read one by one.
        """
        at = self.begin
        columns, strange = [], np.zeros(len(at), bool)
        for number in (1, 2, 3):
            is_here = (self._raw[at] == number << 3) & (at < self.end)
            value, length = _short_varints(self._words[at + 1])
            strange |= is_here & (length > 8)
            columns.append(np.where(is_here, value, 0))
            at = np.where(is_here, at + 1 + length, at)
            if number == 2:
                strange |= ~is_here
        strange |= (at > self.end) | ((at < self.end) & (self._raw[at] != 4 << 3 | BYTES))
        if (look := np.flatnonzero(strange)).size:
            wrong = self._look_closely(look, columns)
            if wrong is not None:
                return wrong
        return columns[0], columns[1], columns[2]

    def _look_closely(self, messages: Ints, columns: list[Ints]) -> int | None:
        for column in columns:
            column[messages] = 0
        for message in messages.tolist():
            fields = _plain_fields(self.body(message))
            if fields is None:
                return int(message)
            for number, value in fields:
                columns[number - 1][message] = value & _LARGEST
        return None


def plain(body: bytes) -> list[tuple[int, int, int, bytes]] | None:
    """(number, type, value, bytes) of the fields of a short message; None if it is damaged."""
    fields = []
    position, size = 0, len(body)
    while position < size:
        tag, position = _length(body, position)
        kind, data = tag & 7, b""
        if position < 0 or tag < 8 or position >= size:
            return None
        if kind in (FIXED64, FIXED32):
            after = position + (8 if kind == FIXED64 else 4)
            value = int.from_bytes(body[position:after], "little")
        elif kind in (VARINT, BYTES):
            value, after = _length(body, position)
            if after < 0:
                return None
            if kind == BYTES:
                data = body[after : after + value]
                after += value
        else:
            return None
        if after > size:
            return None
        fields.append((tag >> 3, kind, value, data))
        position = after
    return fields


def _plain_fields(body: bytes) -> list[tuple[int, int]] | None:
    """(number, value) of the varint fields 1 to 3; None if the message cannot be read.

    A message with a field 5 stands for several events without a time: its field 3 is left out.
    """
    fields = plain(body)
    if fields is None:
        return None
    numbers = [(number, value) for number, kind, value, _ in fields if kind == VARINT]
    most = 2 if any(number == 5 for number, _ in numbers) else 3
    return [(number, value) for number, value in numbers if number <= most]


def _walk(data: bytes, tag: int) -> tuple[Ints, Ints, int]:
    """Begin and end of each complete message, and the position after the last.

    A message's end is known only from its begin, so a plain loop takes a Python step per message.
    Instead all chunks are walked at once, each from a likely begin.  Where the walk from the start
    meets the walk of a chunk, the two are the same from there on.
    """
    size = len(data)
    marks, exits = _guessed(data, tag)
    singly: list[int] = []
    longs: list[tuple[int, int]] = []
    position = known = 0
    while position < size:
        if marks[position]:
            chunk = position // _CHUNK
            marks[known:position] = False
            position = exits[chunk]
            known = min(position, (chunk + 1) * _CHUNK)
            continue
        length, begin = _length(data, position + 1)
        if data[position] != tag or begin < 0 or begin + length > size:
            break
        singly.append(position)
        if begin > position + 2:
            longs.append((position, begin))
        position = begin + length
    marks[known:] = False
    marks[singly] = True
    starts = np.flatnonzero(marks)
    if position > size:  # the last is incomplete
        starts, position = starts[:-1], int(starts[-1])
    return *_places(starts, longs, position), position


def _guessed(data: bytes, tag: int) -> tuple[NDArray[np.bool_], list[int]]:
    """Where messages begin if the first tag byte of each chunk begins one; and for each chunk where
    that walk leaves it, or stops at anything but a short message."""
    raw = np.frombuffer(data + bytes(2), np.uint8)
    count = len(data) // _CHUNK
    marks = np.zeros(len(data) + 1, bool)
    walker = np.arange(count)
    edge = (walker + 1) * _CHUNK
    chunks = raw[: count * _CHUNK].reshape(count, _CHUNK)
    at = walker * _CHUNK + (chunks == tag).argmax(axis=1)
    exits = at.copy()
    while len(walker):
        length = raw[at + 1]
        short = (raw[at] == tag) & (length < 128)
        walker, at, length = walker[short], at[short], length[short]
        marks[at] = True
        at = at + 2 + length
        exits[walker] = at
        inside = at < edge[walker]
        walker, at = walker[inside], at[inside]
    return marks, exits.tolist()


def _places(starts: Ints, longs: list[tuple[int, int]], after: int) -> tuple[Ints, Ints]:
    """Bodies of consecutive messages; `longs`: those whose length takes several bytes."""
    begin = starts + 2
    known = [pair for pair in longs if pair[0] < after]
    if known:
        at, bodies = np.array(known).T
        begin[np.searchsorted(starts, at)] = bodies
    return begin, np.append(starts[1:], after) if len(starts) else starts


def _length(data: bytes, position: int) -> tuple[int, int]:
    """A varint and the position after it; a negative position if it is truncated or too long."""
    if 0 <= position < len(data) and (byte := data[position]) < 128:
        return byte, position + 1
    value = shift = 0
    for byte in data[position : position + _LONGEST_VARINT] if position >= 0 else b"":
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position + shift // 7
    return 0, -1


def _short_varints(words: Words) -> tuple[Ints, Ints]:
    """Values and lengths of varints in these eight bytes; a length above eight if one is longer.
    The seven bits of each byte are joined in steps of two, four and eight bytes."""
    stops = ~words & _TOP_BITS
    lowest = stops & (~stops + np.uint64(1))
    below = lowest - np.uint64(1)  # all ones where there is no stop
    length = ((np.bitwise_count(below).astype(np.int64)) >> 3) + 1
    value = words & below & _LOW_BITS
    for shift, kept, moved in _JOINS:
        value = (value & kept) | ((value & moved) >> shift)
    return value.astype(np.int64), length


def signed(value: int) -> int:
    """The value of an int64 field: negative values are stored as large ones."""
    return value - (1 << 64) if value > _LARGEST else value


def double(value: int) -> float:
    return float(np.array([value], np.uint64).view(np.float64)[0])
