"""Whether an exception that came up in our code belongs to the user.

A guard that catches everything also catches the user's exceptions: those that a signal handler
raises (for a time limit, say) and those that another thread sets (`PyThreadState_SetAsyncExc`) come
wherever the program happens to be.  They are not our failures, so we raise them again.

Python does not say where an exception came from, so we read its traceback:

* A signal handler gets the frame that it interrupts, and that frame comes right before its own in
the
  traceback.  A function that we call does not hold our frame.
* An exception set by another thread is a class, and no statement raises it.  So it has no
arguments,
  unless its own `__init__` adds some; an exception from a failed call nearly always has arguments.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Final

_PACKAGE: Final = os.path.dirname(__file__) + os.sep
# Exceptions that functions in C raise without arguments.
_SPEECHLESS: Final = ("MemoryError", "StopIteration", "StopAsyncIteration", "Empty", "Full")


def let_pass(error: BaseException) -> None:
    """For code that catches exceptions in the user's threads: raises the user's ones again."""
    if is_interruption(error):
        raise error


def is_interruption(error: BaseException) -> bool:
    entry, before = error.__traceback__, None
    if entry is None:
        return False
    while True:
        frame = entry.tb_frame
        if before is not None and _is_handler(frame, before):
            return True
        if entry.tb_next is None:
            return _is_set_from_outside(error, entry)
        before, entry = frame, entry.tb_next


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename.startswith(_PACKAGE):
        return False
    return _holds(frame, interrupted) or code in _handlers()


def _holds(frame: FrameType, interrupted: FrameType) -> bool:
    for value in list(frame.f_locals.values()):
        if value is interrupted:
            return True
        if type(value) is tuple and any(item is interrupted for item in value):
            return True
    return False


def _handlers() -> set[CodeType]:
    """The code of the handlers installed now: one may have deleted its frame argument."""
    signals: Any = sys.modules.get("signal")
    if signals is None:
        return set()
    return {
        code
        for number in signals.valid_signals()
        if (code := _code_of(signals.getsignal(number))) is not None
    }


def _code_of(handler: Any) -> CodeType | None:
    for _ in range(10):  # a partial of a partial …
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            return code
        if not callable(handler) or isinstance(handler, type):
            return None
        inner = getattr(handler, "func", None)
        handler = inner if callable(inner) else type(handler).__call__
    return None


def _is_set_from_outside(error: BaseException, last: TracebackType) -> bool:
    kind = type(error)
    if kind.__name__ in _SPEECHLESS or (error.args and not _finds_own_words(kind)):
        return False
    from opcode import opmap  # seldom needed

    code, at = last.tb_frame.f_code.co_code, last.tb_lasti
    return at < 0 or code[at] not in (opmap["RAISE_VARARGS"], opmap["RERAISE"])


def _finds_own_words(kind: type[BaseException]) -> bool:
    """Whether the user's class may add arguments itself, although only the class was set."""
    return kind.__module__ != "builtins" and any(
        isinstance(vars(base).get("__init__"), FunctionType) for base in kind.__mro__
    )
