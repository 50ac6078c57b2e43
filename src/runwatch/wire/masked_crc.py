"""The checksum of TensorBoard's event files: CRC-32C, masked."""

from __future__ import annotations

from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, bits reversed
_MASK: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF


def checksum(data: bytes) -> int:
    table, crc = _table(), _ALL
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= _ALL
    return ((crc >> 15 | crc << 17) + _MASK) & _ALL


@cache
def _table() -> tuple[int, ...]:
    remainders = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        remainders.append(byte)
    return tuple(remainders)
