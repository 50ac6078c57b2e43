"""One case of the laboratory: what a program does in the middle of its steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
BEFORE, AFTER = 15, 10
"""Steps before it happens, and after it if it ends."""
STEP_SECONDS: Final = 0.02


@dataclass(slots=True)
class Scene:
    """What a case has at hand."""

    run: Any
    folder: Path
    """Its own, for files."""
    seconds: float
    """How long a look-alike takes."""
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def draw(self) -> random.Random:
        return random.Random(f"{self.seed} {self.rank}")


Does = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    words: str
    """For people: a line of the table."""
    does: Does
    hangs: bool
    world: int = 1
    culprit: int = 0
    marks: bool = True
    """A line of it ends in `# here: NAME`: that is the one to be named."""
    needs: tuple[str, ...] = ()
    """Imported before the first step."""

    @property
    def place(self) -> str:
        """`hanging.py:88`."""
        path = Path(self.does.__code__.co_filename)
        lines = path.read_text().splitlines()
        (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# here: {self.name}"))
        return f"{path.name}:{number}"


class Shelf:
    """Cases in the order in which they are written."""

    def __init__(self, *, hangs: bool, world: int = 1) -> None:
        self.cases: list[Case] = []
        self._hangs, self._world = hangs, world

    def __call__(
        self, words: str, *needs: str, culprit: int = 0, marks: bool = True
    ) -> Callable[[Does], Does]:
        def keep(does: Does) -> Does:
            made = Case(does.__name__, words, does, self._hangs, self._world, culprit, marks, needs)
            self.cases.append(made)
            return does

        return keep
