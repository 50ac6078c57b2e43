"""Times, numbers, states and tables for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from runwatch.cli.pictures.moments import duration as duration
from runwatch.cli.pictures.moments import time as time
from runwatch.terminal import shown

STATE_STYLE: Final = {
    "running": "green",
    "completed": "blue",
    "failed": "bold red",
    "killed": "bold red",
    "lost": "bold yellow",
    "stalled": "bold yellow",
}
STATE_MARK: Final = {
    "running": "▶", "completed": "✔", "failed": "✘", "killed": "✘", "lost": "?", "stalled": "■",
}  # fmt: skip


class _Plain(Console):
    """Only Runwatch's own escape sequences reach the terminal, none from recorded texts."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)


def console() -> Console:
    return _Plain(soft_wrap=False)


def table(*columns: str, right: tuple[str, ...] = (), fold: str = "") -> Table:
    """Columns are as wide as their content; only `fold` wraps when the terminal is narrow."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        drawn.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column != fold,
        )
    return drawn


def state_of(run: Mapping[str, Any]) -> Text:
    """The state of a run; a running one may be stalled."""
    return state("stalled" if run.get("stalled") else run["state"])


def state(name: str) -> Text:
    return Text(f"{STATE_MARK.get(name, ' ')} {name}", style=STATE_STYLE.get(name, ""))


def number(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.4g}"


def print_json(answer: Any) -> None:
    print(json.dumps(answer, indent=2))
