"""numpy, if somebody has loaded it, as every reader of a store has; nobody must install it.

It is only a faster way: without it the results are the same.
"""

from __future__ import annotations

import sys
from array import array
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Column = npt.NDArray[np.int64]


class Switch:
    """Whether numpy may be used, and the module."""

    on = True
    numpy: Any = None


def numpy() -> Any:
    """None if nobody has loaded it: a training process need not, for our sake."""
    if Switch.numpy is None and sys.modules.get("numpy") is not None:
        Switch.numpy = import_module("numpy")  # waits if another thread is importing it
    return Switch.numpy if Switch.on else None


def column(numbers: array[int]) -> Column:
    """An array view of the same memory."""
    view: Column = numpy().frombuffer(numbers, numpy().int64)
    return view


def packed(numbers: Column) -> array[int]:
    values = array("q")
    values.frombytes(numpy().ascontiguousarray(numbers).tobytes())
    return values
