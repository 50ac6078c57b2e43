"""Which handler a signal has, below Python.

`signal.getsignal` knows only handlers that were set through it.  And when faulthandler releases a
signal, it restores the handler it had found, even over one that somebody set in between.  So we ask
and tell the kernel directly.  This works from any thread; `signal.signal` needs the main one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

UNKNOWN: Final = -1
DEFAULT: Final = 0
IGNORED: Final = 1
NOBODYS: Final = (DEFAULT, IGNORED)
_WORD: Final = 8
_ROOM: Final = 512  # struct sigaction is 152 bytes on 64-bit Linux; the handler comes first


@cache
def _library() -> ctypes.CDLL | None:
    try:
        import ctypes
    except ImportError:  # a Python built without it
        return None
    return ctypes.CDLL(None)


def action(number: int) -> bytes | None:
    """The signal's whole disposition, to restore later; None if it cannot be read."""
    library = _library()
    if library is None:
        return None
    import ctypes

    buffer = ctypes.create_string_buffer(_ROOM)
    return buffer.raw if library.sigaction(number, None, buffer) == 0 else None


def handler(number: int) -> int:
    """The address of the signal's handler: DEFAULT, IGNORED, UNKNOWN, or any other."""
    disposition = action(number)
    return UNKNOWN if disposition is None else int.from_bytes(disposition[:_WORD], sys.byteorder)


def put_back(number: int, disposition: bytes) -> None:
    library = _library()
    if library is not None:
        library.sigaction(number, disposition, None)


def ignore(number: int) -> None:
    put_back(number, IGNORED.to_bytes(_WORD, sys.byteorder) + bytes(_ROOM - _WORD))


def let_go(ours: Mapping[int, int], undo: Callable[[], object]) -> None:
    """Call `undo`, which resets the signals of `ours`, and keep handlers that others set meanwhile.

    `ours`: signal -> the address of our handler.
    """
    theirs = {number: action(number) for number, mine in ours.items() if handler(number) != mine}
    undo()
    for number, disposition in theirs.items():
        if disposition is not None:
            put_back(number, disposition)
