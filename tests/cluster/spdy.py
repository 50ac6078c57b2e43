"""Frames of SPDY/3.1, as `kubectl port-forward` sends them through a WebSocket.

A control frame is 1 bit, 15 bits of version, 16 of type, 8 of flags, 24 of length; a data frame
32 bits of stream, 8 of flags, 24 of length.  Headers are one zlib stream for the whole connection,
which begins with a dictionary that both sides know.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 1, 2, 3, 6
FIN: Final = 1

_WORDS: Final = """
options head post put delete trace accept accept-charset accept-encoding accept-language
accept-ranges age allow authorization cache-control connection content-base content-encoding
content-language content-length content-location content-md5 content-range content-type date etag
expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate
method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _text(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


_DICTIONARY: Final = (
    b"".join(_text(word.replace("_", " ").encode()) for word in _WORDS.split()) + _REST.encode()
)


class Frame(NamedTuple):
    """`kind` 0: data."""

    kind: int
    stream: int
    flags: int
    data: bytes = b""
    headers: Mapping[str, str] = {}


class Reader:
    """Of one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)

    def frames(self, data: bytes) -> Iterator[Frame]:
        """Those that are whole by now."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & 0xFFFFFF
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            yield self._frame(first, second >> 24, body)

    def _frame(self, first: int, flags: int, body: bytes) -> Frame:
        if not first >> 31:
            return Frame(0, first, flags, body)
        kind = first & 0xFFFF
        stream = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
        if kind != SYN_STREAM:
            return Frame(kind, stream, flags, body)
        return Frame(kind, stream, flags, body, dict(self._headers(body[10:])))

    def _headers(self, packed: bytes) -> Iterator[tuple[str, str]]:
        block = self._inflate.decompress(packed)
        at = 4
        words: list[str] = []
        while at < len(block):
            (length,) = struct.unpack_from(">I", block, at)
            words.append(block[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return zip(words[::2], words[1::2], strict=True)


class Writer:
    """Of one connection."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    def reply(self, stream: int) -> bytes:
        packed = self._deflate.compress(struct.pack(">I", 0))
        packed += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(SYN_REPLY, struct.pack(">I", stream) + packed)


def control(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, len(body)) + body


def data(stream: int, said: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", stream, flags << 24 | len(said)) + said
