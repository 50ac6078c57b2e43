"""numpy where somebody has loaded it: as wherever a store is read; nobody has to have it.

What is done with it is a short cut and nothing else: without it the same numbers come out.
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
    """Whether the short cut may be taken, and with what."""

    on = True
    numpy: Any = None


def numpy() -> Any:
    """None where nobody has loaded it: a training process need not, for our sake."""
    if Switch.numpy is None and sys.modules.get("numpy") is not None:
        Switch.numpy = import_module("numpy")  # another thread may be about to
    return Switch.numpy if Switch.on else None


def column(numbers: array[int]) -> Column:
    """The same memory."""
    found: Column = numpy().frombuffer(numbers, numpy().int64)
    return found


def packed(numbers: Column) -> array[int]:
    made = array("q")
    made.frombytes(numpy().ascontiguousarray(numbers).tobytes())
    return made
