"""Descriptors in a process that is not ours.

Programs close descriptors that they did not open (`os.closerange` in code that makes a daemon), and
the next file they open gets the number.  Whoever keeps a number must therefore ask, before it is
used or closed, whether it is still what it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from runwatch.interruption import let_pass

_LEAST_MARK: Final = 1 << 38


class Descriptor:
    """A number, and how to tell whether it is still ours."""

    __slots__ = ("fd", "identity", "_mark")

    def __init__(self, fd: int, *, mark: int = 0) -> None:
        """`mark`: where the file's own offset stands, as `marked` has put it."""
        self.fd = fd
        self.identity = _identity(fd)
        self._mark = mark

    @classmethod
    def opened(cls, path: Path, flags: int, mode: int = 0o600) -> Descriptor:
        """A marked one; closed again if an exception of a signal handler's cuts us short."""
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
        """A file that is read and written at given places only.  So its own offset can be put where
        nobody's is: to ask for that takes a quarter of the time of asking for device and inode."""
        mark = _LEAST_MARK + int.from_bytes(os.urandom(4))
        try:
            os.lseek(fd, mark, os.SEEK_SET)
        except OSError:  # such large files are not for this file system
            mark = 0
        return cls(fd, mark=mark)

    def is_ours(self) -> bool:
        if self.fd < 0:
            return False
        try:
            if self._mark:
                return os.lseek(self.fd, 0, os.SEEK_CUR) == self._mark
            return _identity(self.fd) == self.identity
        except OSError as error:  # closed, or something without an offset
            let_pass(error)
            return False

    def twin(self, fd: int) -> Descriptor | None:
        """`fd`, if it is another number of the same."""
        try:
            found = Descriptor(fd, mark=self._mark)
        except OSError:
            return None
        return found if found.identity == self.identity and found.is_ours() else None

    def is_nobodys(self) -> bool:
        try:
            os.fstat(self.fd)
        except OSError:
            return True
        return False

    def close(self) -> None:
        """If it is somebody else's by now, it stays open."""
        fd = self.fd
        if self.is_ours():
            self.fd = -1
            os.close(fd)
        self.fd = -1


def made_into(numbers: list[int], make: Callable[..., int], *arguments: Any) -> None:
    """A new descriptor is in the list before anything can interrupt us: handlers of signals run
    between steps of Python, and this is one step."""
    numbers.extend(map(make, *((each,) for each in arguments)))


def _identity(fd: int) -> tuple[int, int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_mode & 0o170000
