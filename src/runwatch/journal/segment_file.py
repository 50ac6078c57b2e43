"""A segment's file, allocated for real; and mapped, for the training thread, where that is safe.

Mapped memory is the cheapest way to write.  But a page that cannot be allocated when it is stored
to kills the program (SIGBUS).  On a file system that overwrites blocks in place, allocating in
advance is enough.  On one that copies on write (`file_system.py`) it is not: there everything is
written with `pwrite`, which returns an error instead.  `pwrite` is also used wherever speed does
not matter: it releases the interpreter lock, so a hanging file system stops only the thread that
waits for it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from pathlib import Path
from typing import Any, Final

from runwatch.journal.descriptor import Descriptor, made_into
from runwatch.journal.segment import HEADER_LENGTH, Header

_POPULATE_WRITE: Final = 23  # madvise(2): fault pages in for writing; Linux 5.14
_POPULATE_CHUNK: Final = 128 << 10  # small, because the call holds the interpreter lock
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_AGAIN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_held: Final[list[mmap.mmap]] = []


class SegmentFile:
    """One segment on disk.  `map` is None if the file must not be mapped."""

    __slots__ = ("map", "path", "index", "definitions", "offset", "_file", "_maps_own")

    def __init__(self, path: Path, header: Header, *, mapped: bool) -> None:
        self.path = path
        self.index = header.index
        self.definitions = 0
        self.offset = HEADER_LENGTH
        self.map: mmap.mmap | None = None
        self._maps_own: Descriptor | None = None
        # Always a new file.  Truncating an old one that somebody has mapped would be a SIGBUS.
        path.unlink(missing_ok=True)
        self._file = Descriptor.opened(path, _NEW)
        try:
            os.fchmod(self._file.fd, 0o600)
            allocate(self._file.fd, header.length)
            self.write(0, header.pack())
            if mapped:
                self._map(header.length)
        except BaseException:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def _map(self, length: int) -> None:
        if sys.version_info >= (3, 13):
            self.map = mmap.mmap(self._file.fd, length, trackfd=False)
            return
        # `mmap` duplicates the descriptor, hides its number, and closes it without checking.
        numbers: list[int] = []
        try:
            made_into(numbers, os.dup, self._file.fd)
        finally:
            for likely in numbers:
                os.close(likely)
        self.map = mmap.mmap(self._file.fd, length)
        self._maps_own = self._file.twin(likely) or _other_number(self._file)

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data`, or raise OSError."""
        fd = self._own()
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, data[written:], offset + written)

    def put(self, records: bytes) -> None:
        self.write(self.offset, records)
        self.offset += len(records)

    def _own(self) -> int:
        """The file's descriptor, reopened if the program has closed it."""
        if not self._file.is_ours():
            identity = self._file.identity
            again = Descriptor.opened(self.path, _AGAIN)
            if again.identity != identity:
                again.close()
                raise OSError(errno.ESTALE, "another file has its name", str(self.path))
            self._file = again
        return self._file.fd

    def holds(self, length: int) -> bool:
        """Whether the file is still that long: touching a page beyond its end kills the process."""
        return os.fstat(self._own()).st_size >= length

    def sync(self) -> None:
        with contextlib.suppress(OSError):
            os.fdatasync(self._own())

    def unmap(self) -> None:
        mapped, self.map = self.map, None
        own, self._maps_own = self._maps_own, None
        if mapped is None:
            return
        if own is None or own.is_ours() or own.is_nobodys():
            mapped.close()
        else:
            hold_for_ever(mapped)  # closing it would close a descriptor of the program

    def cut(self, end: int) -> None:
        """Truncate the file to `end`, to free what is not used."""
        self.unmap()
        os.ftruncate(self._own(), end)

    def close(self) -> None:
        self.unmap()
        self._file.close()

    def __del__(self) -> None:
        # An exception from a signal handler may have interrupted the code that would close us.
        if hasattr(self, "_file"):
            self.close()


def hold_for_ever(mapped: mmap.mmap) -> None:
    """Keep the mapping, even when the interpreter ends."""
    import ctypes  # seldom needed

    _held.append(mapped)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))


def _other_number(file: Descriptor) -> Descriptor | None:
    """The duplicate's real number, when another thread took the one that we expected."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            if int(name) != file.fd and (twin := file.twin(int(name))) is not None:
                return twin
    return None


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


def populate(segment: SegmentFile, start: int, end: int) -> None:
    """Touch the pages so that the training thread does not wait for them."""
    mapped: Any = segment.map
    if mapped is None:
        return
    for chunk in range(start, end, _POPULATE_CHUNK):
        size = min(_POPULATE_CHUNK, end - chunk)
        try:
            mapped.madvise(_POPULATE_WRITE, chunk, size)
        except (OSError, ValueError):
            return  # an older kernel, or the map was closed: pages are faulted in on first use
        os.sched_yield()  # lets other threads take the interpreter lock between chunks
