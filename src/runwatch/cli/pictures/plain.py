"""The console that all pictures are printed on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from runwatch.terminal import shown


class Plain(Console):
    """Only Runwatch's own escape sequences reach the terminal, none from recorded texts."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        """Lines that are too long are left to the terminal, which wraps them: nothing is cut."""
        super().print(*objects, **{"crop": False, **options})
