"""Steps that were done in rising order, and when."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Any


class Lap:
    """Steps in rising order, and when each began.  Eight bytes a step."""

    __slots__ = ("begins", "end_ns", "last_step", "restored", "_first", "_at")

    def __init__(self, restored: bool = False) -> None:
        self.restored = restored
        """Whether a state was restored before the lap, or ranks came or went."""
        self.begins = array("q")
        self.end_ns = 0
        self.last_step = 0
        self._first: list[int] = []
        """The first step of each run of consecutive steps."""
        self._at: list[int] = []
        """Where in `begins` each such run starts."""

    def add(self, step: int, begin_ns: int, end_ns: int) -> None:
        if step != self.last_step + 1 or not self._first:
            self._first.append(step)
            self._at.append(len(self.begins))
        self.begins.append(begin_ns)
        self.last_step = step
        self.end_ns = end_ns

    def extend(self, begins: array[int], end_ns: int) -> None:
        """Adds steps that follow the last one."""
        self.begins.extend(begins)
        self.last_step += len(begins)
        self.end_ns = end_ns

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def first_step(self) -> int:
        return self._first[0]

    def index(self, step: int) -> int:
        """Where the first step that is not below `step` lies; `len` if there is none."""
        run = bisect_left(self._first, step)
        after = self._at[run] if run < len(self._at) else len(self.begins)
        if run:
            return min(self._at[run - 1] + step - self._first[run - 1], after)
        return after

    def step_at(self, index: int) -> int:
        run = bisect_right(self._at, index) - 1
        return self._first[run] + index - self._at[run]

    def state(self) -> dict[str, Any]:
        plain = {"end": self.end_ns, "restored": self.restored}
        return plain | {"begins": self.begins, "first": self._first, "at": self._at}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Lap:
        lap = cls(state["restored"])
        lap.begins, lap.end_ns = array("q", state["begins"]), state["end"]
        lap._first, lap._at = list(state["first"]), list(state["at"])
        lap.last_step = lap.step_at(len(lap) - 1)
        return lap
