"""File descriptors in a process that belongs to somebody else.

Programs close descriptors that they did not open (`os.closerange` in code that makes a daemon), and
the next file that they open gets the number.  So before we use or close a descriptor, we check that
it is still our file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from runwatch.interruption import let_pass

_LEAST_MARK: Final = 1 << 38


class Descriptor:
    """A descriptor, and how to tell whether it is still our file."""

    __slots__ = ("fd", "identity", "_mark")

    def __init__(self, fd: int, *, mark: int = 0) -> None:
        """`mark`: the file's own offset, as `marked` has set it."""
        self.fd = fd
        self.identity = _identity(fd)
        self._mark = mark

    @classmethod
    def opened(cls, path: Path, flags: int, mode: int = 0o600) -> Descriptor:
        """Open and mark a file.  Closes it again if a signal handler's exception interrupts us."""
        numbers: list[int] = []
        try:
            made_into(numbers, os.open, path, flags, mode)
            return cls.marked(numbers[0])
        except BaseException:
            for fd in numbers:
                os.close(fd)
            raise

    @classmethod
    def marked(cls, fd: int) -> Descriptor:
        """For a file that is only read and written at explicit offsets.  Its own offset is free, so
        we set it to a random large value.  Checking it is four times as fast as `fstat`."""
        mark = _LEAST_MARK + int.from_bytes(os.urandom(4))
        try:
            os.lseek(fd, mark, os.SEEK_SET)
        except OSError:  # this file system does not allow such large offsets
            mark = 0
        return cls(fd, mark=mark)

    def is_ours(self) -> bool:
        if self.fd < 0:
            return False
        try:
            if self._mark:
                return os.lseek(self.fd, 0, os.SEEK_CUR) == self._mark
            return _identity(self.fd) == self.identity
        except OSError as error:  # closed, or a file without an offset
            let_pass(error)
            return False

    def twin(self, fd: int) -> Descriptor | None:
        """`fd` as a Descriptor, if it is a duplicate of this one."""
        try:
            candidate = Descriptor(fd, mark=self._mark)
        except OSError:
            return None
        return candidate if candidate.identity == self.identity and candidate.is_ours() else None

    def is_nobodys(self) -> bool:
        try:
            os.fstat(self.fd)
        except OSError:
            return True
        return False

    def close(self) -> None:
        """Close the file, unless the number belongs to another file by now."""
        fd = self.fd
        if self.is_ours():
            self.fd = -1
            os.close(fd)
        self.fd = -1


def made_into(numbers: list[int], make: Callable[..., int], *arguments: Any) -> None:
    """Append a new descriptor to `numbers` before a signal handler can interrupt us: handlers run
    between Python steps, and this is one step."""
    numbers.extend(map(make, *((argument,) for argument in arguments)))


def _identity(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_mode & 0o170000
