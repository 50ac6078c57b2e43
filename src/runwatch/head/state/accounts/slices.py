"""Long work as a generator: each `yield` ends a slice, after which other work may have its turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

Result = TypeVar("Result")
Slices: TypeAlias = Generator[bool, None, Result]
"""It yields whether the slice got anything done."""
WORKED: Final = True
BLOCKED: Final = False
"""Somebody else holds what it needs.  Try again in a moment."""


def finish(slices: Slices[Result]) -> Result:
    """Do all of it at once."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: Result = end.value
            return result
