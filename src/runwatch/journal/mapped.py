"""A segment's file, allocated for real and mapped: where the training thread writes."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from pathlib import Path
from typing import Final

from runwatch.journal.segment import HEADER_LENGTH, Header

_POPULATE_WRITE: Final = 23  # madvise(2): fault pages in for writing; Linux 5.14
_POPULATE_CHUNK: Final = 128 << 10  # the call holds the interpreter lock, so in small bites


class MappedSegment:
    """One mapped file."""

    __slots__ = ("map", "file", "path", "index", "definitions", "offset")

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.index = header.index
        self.definitions = 0
        self.offset = HEADER_LENGTH
        # A new file, never an old one made empty: truncating what is mapped is a SIGBUS.
        path.unlink(missing_ok=True)
        self.file = io.FileIO(path, "x+")
        try:
            os.fchmod(self.file.fileno(), 0o600)
            allocate(self.file.fileno(), header.length)
            self.map = mmap.mmap(self.file.fileno(), header.length)
        except BaseException:
            self.file.close()
            path.unlink(missing_ok=True)
            raise
        self.map[:HEADER_LENGTH] = header.pack()

    def put(self, record: bytes) -> None:
        end = self.offset + len(record)
        self.map[self.offset : end] = record
        self.offset = end

    def sync(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.fdatasync(self.file.fileno())

    def close(self) -> None:
        self.map.close()
        self.file.close()

    def __del__(self) -> None:
        # A signal handler's exception may have cut short whoever was to close us.
        file = getattr(self, "file", None)
        if file is not None:
            file.close()


def allocate(fd: int, length: int) -> None:
    """Really allocate: a sparse file on a full disk would kill the writer with SIGBUS."""
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        zeros, start = bytes(1 << 20), 0
        while start < length:
            start += os.pwrite(fd, zeros[: length - start], start)


def populate(segment: MappedSegment, start: int, end: int) -> None:
    """Touch the pages so that the training thread does not wait for them."""
    for chunk in range(start, end, _POPULATE_CHUNK):
        size = min(_POPULATE_CHUNK, end - chunk)
        try:
            segment.map.madvise(_POPULATE_WRITE, chunk, size)
        except (OSError, ValueError):
            return  # an older kernel, or closed meanwhile: the pages come on first use
        os.sched_yield()  # lets go of the interpreter lock between bites
