"""Recognises a trace by its first bytes, and streams it with limits against zip bombs."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from runwatch.errors import RunwatchError

Kind = Literal["xplane", "json", "json.gz"]

_GZIP: Final = b"\x1f\x8b"
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
# First bytes of files that are mistaken for traces, or passed off as one.
_OTHERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"BZh", "a bzip2 file"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format", "an SQLite database (an Nsight Systems report?)"),
    (b"<", "a page of HTML or XML"),
)


class BadTrace(RunwatchError):
    """Not a trace, damaged, or too large; the message says where."""


@dataclass(frozen=True)
class Limits:
    file_bytes: int = 16 << 30
    unpacked_bytes: int = 8 << 30
    unpacked_ratio: int = 200
    """Traces compress ten to forty times; a file that compresses more is a bomb."""
    ratio_from_bytes: int = 64 << 20
    event_bytes: int = 16 << 20
    """One event, or one other value, of a JSON trace."""
    events: int = 60_000_000
    held_events: int = 12_000_000
    """In memory at once: all events of a JSON trace, or those of one thread in an XSpace."""
    names: int = 200_000
    """Different names; further ones are counted together."""


def recognise(path: Path, limits: Limits) -> Kind:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise BadTrace(f"{path}: cannot be read ({error.strerror})") from error
    if size > limits.file_bytes:
        raise BadTrace(f"{path}: {size:,} bytes is too large; the limit is {limits.file_bytes:,}")
    return _kind(path, head)


def _kind(path: Path, head: bytes) -> Kind:
    if not head:
        raise BadTrace(f"{path}: the file is empty")
    for beginning, what in _OTHERS:
        if head.startswith(beginning):
            raise BadTrace(f"{path}: this is {what}, not a trace; Runwatch did not open it")
    if head.startswith(_GZIP):
        return "json.gz"
    first = head.lstrip(_BLANK)[:1]
    # An XSpace may also begin with a newline: it is the tag of its first field.
    looks_like_text = first in (b"{", b"[") and b"\0" not in head[:64] and not _is_xspace(head)
    if looks_like_text:
        return "json"
    if _is_xspace(head):
        return "xplane"
    raise BadTrace(f"{path}: neither JSON nor an XSpace; it begins with {head[:8]!r}")


def _is_xspace(head: bytes) -> bool:
    """Starts with a length-delimited field 1 to 4 whose length fits an XPlane after it."""
    if head[0] not in (0x0A, 0x12, 0x1A, 0x22):
        return False
    position = 1
    while position < len(head) and head[position] & 0x80:
        position += 1
    if head[0] != 0x0A:
        return True
    # A plane begins with its id (0x08) or its name (0x12), or is empty.
    return position + 1 >= len(head) or head[position + 1] in (0x08, 0x12, 0x1A, 0x22, 0x2A, 0x0A)


@contextmanager
def text_stream(path: Path, kind: Kind, limits: Limits) -> Iterator[Callable[[int], bytes]]:
    """A function that reads the next bytes.  It unpacks gzip, and refuses a zip bomb."""
    with path.open("rb") as raw:
        yield raw.read if kind == "json" else _unpacking(path, raw, limits)


def _unpacking(path: Path, raw: BinaryIO, limits: Limits) -> Callable[[int], bytes]:
    stream = gzip.GzipFile(fileobj=raw)
    packed = os.fstat(raw.fileno()).st_size
    unpacked = 0

    def read(size: int) -> bytes:
        nonlocal unpacked
        try:
            data = stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise BadTrace(f"{path}: damaged gzip after {unpacked:,} bytes ({error})") from error
        unpacked += len(data)
        _check_growth(path, unpacked, packed, limits)
        return data

    return read


def _check_growth(path: Path, unpacked: int, packed: int, limits: Limits) -> None:
    if unpacked > limits.unpacked_bytes:
        raise BadTrace(f"{path}: unpacks to more than {limits.unpacked_bytes:,} bytes")
    if unpacked > max(limits.ratio_from_bytes, packed * limits.unpacked_ratio):
        raise BadTrace(
            f"{path}: {packed:,} bytes unpack to more than {unpacked:,}; "
            f"no trace compresses {limits.unpacked_ratio} times, so this is not one"
        )
