"""Who handles a signal, below Python.

`signal.getsignal` knows only handlers set through it, and faulthandler, when it lets go of a
signal, puts back what it found when it came, even over a handler that someone set in between.
So the kernel is asked, and told.  From any thread, where `signal.signal` wants the main one.
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
    """The signal's whole disposition, to put back later; None where it cannot be had."""
    library = _library()
    if library is None:
        return None
    import ctypes

    found = ctypes.create_string_buffer(_ROOM)
    return found.raw if library.sigaction(number, None, found) == 0 else None


def handler(number: int) -> int:
    """The address of the signal's handler: DEFAULT, IGNORED, UNKNOWN, or somebody's."""
    found = action(number)
    return UNKNOWN if found is None else int.from_bytes(found[:_WORD], sys.byteorder)


def put_back(number: int, disposition: bytes) -> None:
    library = _library()
    if library is not None:
        library.sigaction(number, disposition, None)


def ignore(number: int) -> None:
    put_back(number, IGNORED.to_bytes(_WORD, sys.byteorder) + bytes(_ROOM - _WORD))


def let_go(ours: Mapping[int, int], undo: Callable[[], object]) -> None:
    """Call `undo`, which resets the signals of `ours`, and keep what others set meanwhile.

    `ours`: the address of our handler, by signal.
    """
    theirs = {number: action(number) for number, mine in ours.items() if handler(number) != mine}
    undo()
    for number, disposition in theirs.items():
        if disposition is not None:
            put_back(number, disposition)
