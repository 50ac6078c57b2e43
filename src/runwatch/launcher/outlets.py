"""What the command writes to in place of our own stdout and stderr, and where it goes from there.

An outlet is of the same kind as what it stands for: a pseudo terminal for a terminal (`ptys.py`), a
pipe for everything else.  Where stdout and stderr are one file, one outlet stands for both, since
the order between them would be lost otherwise.  Standard input is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runwatch.launcher import ptys
from runwatch.launcher.ptys import Mirror

if TYPE_CHECKING:
    from runwatch.record.console import Stream

PIPE_BYTES: Final = 1 << 20
"""The most that the kernel gives everybody.  The command is held back when this much waits."""
_FILES: Final = 0
_KCMP: Final = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}


@dataclass(slots=True)
class Outlet:
    """`inner` is the command's end, `source` is ours, and `target` is where the bytes go."""

    stream: Stream
    numbers: tuple[int, ...]
    """The descriptors that it stands for: 1, 2 or both."""
    target: int
    source: int
    inner: int
    is_relayed: bool = False
    """A thread of ours passes on what comes, and closes it at the end."""
    mirror: Mirror | None = None
    """If it is a terminal."""

    @property
    def is_terminal(self) -> bool:
        return self.mirror is not None

    def close_inner(self) -> None:
        if self.inner >= 0:
            os.close(self.inner)
            self.inner = -1

    def close(self) -> None:
        self.close_inner()
        if self.source >= 0:
            os.close(self.source)
            self.source = -1


def outlets() -> list[Outlet]:
    """One for each of our stdout and stderr that can be written to; one for both if they are
    one."""
    numbers = [number for number in (1, 2) if _is_writable(number)]
    if len(numbers) == 2 and is_same_file(1, 2):
        return [outlet("both", (1, 2), 1)]
    made: list[Outlet] = []
    with contextlib.ExitStack() as undo:
        for number in numbers:
            made.append(outlet("out" if number == 1 else "err", (number,), number))
            undo.callback(made[-1].close)
        undo.pop_all()
    return made


def outlet(stream: Stream, numbers: tuple[int, ...], target: int) -> Outlet:
    if not os.isatty(target):
        return Outlet(stream, numbers, target, *_pipe())
    source, inner = ptys.like(target)
    return Outlet(stream, numbers, target, source, inner, mirror=Mirror(target, source))


def inner_numbers(made: list[Outlet]) -> Iterator[tuple[int, int]]:
    """(descriptor of the command, our descriptor that it becomes)."""
    for each in made:
        for number in each.numbers:
            yield number, each.inner


def _pipe() -> tuple[int, int]:
    source, inner = os.pipe()
    with contextlib.suppress(OSError):  # the user has too many large pipes
        fcntl.fcntl(inner, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return source, inner


def _is_writable(number: int) -> bool:
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:  # it is closed, and stays so
        return False


def is_same_file(one: int, other: int) -> bool:
    """Whether writes to both descriptors have one order: they share a position, or every write
    goes to the end."""
    about, others = os.fstat(one), os.fstat(other)
    if (about.st_dev, about.st_ino) != (others.st_dev, others.st_ino):
        return False
    if stat.S_ISFIFO(about.st_mode) or os.isatty(one):
        return True  # there is no position
    if all(fcntl.fcntl(each, fcntl.F_GETFL) & os.O_APPEND for each in (one, other)):
        return True
    call = _KCMP.get(os.uname().machine)
    if call is None:
        return True
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    me = os.getpid()
    answer = libc.syscall(*(ctypes.c_long(each) for each in (call, me, me, _FILES, one, other)))
    return bool(answer in (0, -1))  # -1: a filter forbids the call, and we take them for one
