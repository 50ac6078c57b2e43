"""Protocol buffers written by hand, for the few small messages of other people's formats.

Standard library only: one of the writers runs in training programs, into which we load no
dependency, and whose own protobuf may know the same messages already.
"""

from __future__ import annotations

import struct
from typing import Final

_ALL: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    """A negative number as its two's complement in 64 bits."""
    number &= _ALL
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def message(field: int, body: bytes) -> bytes:
    """Also for bytes."""
    return bytes((field << 3 | 2,)) + varint(len(body)) + body


def text(field: int, text: str) -> bytes:
    return message(field, text.encode(errors="replace"))


def integer(field: int, number: int) -> bytes:
    return bytes((field << 3,)) + varint(number)


def double(field: int, number: float) -> bytes:
    return struct.pack("<Bd", field << 3 | 1, number)
