"""The row that a logger without explicit steps is in, as wandb and Trackio count it."""

from __future__ import annotations

from typing import Any


class Rows:
    """`log(…)` goes to a row and ends it; with `commit=False`, or with a step, it stays in it."""

    __slots__ = ("row",)

    def __init__(self, first: int = 0) -> None:
        self.row = first

    def at(self, step: Any = None, commit: bool | None = None) -> Any:
        """The step of this call."""
        if step is None:
            at, self.row = self.row, self.row if commit is False else self.row + 1
            return at
        if isinstance(step, int):
            self.row = max(self.row, step + 1 if commit else step)
        return step
