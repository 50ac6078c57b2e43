"""Stretches of code that a tracer must not divide.

To claim a place in a journal and to store there is one step, since the interpreter lets nobody else
run in between.  A tracer or debugger in Python is called before each line, though, and other
threads run meanwhile: two of them claim the same place, and what one stores the other overwrites.
So for a tracer these functions are one line each.  (What asks for every single instruction still
divides them.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = 8
_NO_COLUMNS: Final = 0x80 | 13 << 3
"""An entry of a line table: how many instructions, less one; then how many lines further on."""


def undivided(function: F) -> F:
    if isinstance(function, FunctionType):
        function.__code__ = _in_one_line(function.__code__)
    return function


@lru_cache(maxsize=32)  # closures that are made again and again share it
def _in_one_line(code: CodeType) -> CodeType:
    whole, rest = divmod(len(code.co_code) // 2, _UNITS)
    table = bytes((_NO_COLUMNS | _UNITS - 1, 0)) * whole
    if rest:
        table += bytes((_NO_COLUMNS | rest - 1, 0))
    return code.replace(co_linetable=table)
