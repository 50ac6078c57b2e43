"""Stretches of code that a tracer must not divide.

Claiming a place in a journal and storing there must be one step.  It is one, because the
interpreter lets no other thread run in between.  But a tracer or debugger written in Python is
called before each line, and other threads run meanwhile: two threads could claim the same place,
and one would overwrite the other's record.  So a tracer sees each of these functions as one line.
(A tracer that asks for every single instruction still divides them.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = 8
_NO_COLUMNS: Final = 0x80 | 13 << 3
"""An entry of a line table: the number of instructions minus one, then the line increment."""


def undivided(function: F) -> F:
    if isinstance(function, FunctionType):
        function.__code__ = _in_one_line(function.__code__)
    return function


@lru_cache(maxsize=32)  # closures that are made repeatedly share one code object
def _in_one_line(code: CodeType) -> CodeType:
    whole, rest = divmod(len(code.co_code) // 2, _UNITS)
    table = bytes((_NO_COLUMNS | _UNITS - 1, 0)) * whole
    if rest:
        table += bytes((_NO_COLUMNS | rest - 1, 0))
    return code.replace(co_linetable=table)
