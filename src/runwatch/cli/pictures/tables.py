"""Times, numbers, states and tables for the terminal.

The library that draws is imported by the first drawing: a command with `--json` draws nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from runwatch.cli.pictures.moments import duration as duration
from runwatch.cli.pictures.moments import local_times as local_times
from runwatch.cli.pictures.moments import time as time
from runwatch.cli.pictures.moments import zone as zone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from runwatch.cli.pictures.table import Table

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


def console(*, to_stderr: bool = False) -> Console:
    from runwatch.cli.pictures.plain import Plain

    # Recorded texts are shown as they are: `[x]` is no style and `:x:` no picture.
    return Plain(soft_wrap=False, markup=False, emoji=False, highlight=False, stderr=to_stderr)


def table(*columns: str, right: tuple[str, ...] = (), fold: str = "", zone_of: str = "") -> Table:
    """The first column is what a row is called by; `fold` is prose, and wraps.  The heading of the
    column `zone_of` names the time zone: once is enough."""
    from runwatch.cli.pictures.table import Table

    drawn = Table(columns, right=right, fold=fold)
    if zone_of:
        drawn.rename(zone_of, f"{zone_of} ({zone()})")
    return drawn


def state_of(run: Mapping[str, Any]) -> Text:
    """The state of a run; a running one may be stalled.  What looks well and is not has a mark."""
    name = "stalled" if run.get("stalled") else run["state"]
    warned = any(each["weight"] == "warning" for each in run.get("warnings", ()))
    if warned and name in ("running", "completed"):
        from rich.text import Text

        return Text(f"⚠ {name}", style="bold yellow")
    return state(name)


def waits_of(run: Mapping[str, Any]) -> str:
    """Why nothing of it runs though pods are there for it."""
    return f"waits: {local_times(run['waits'])}"


def state(name: str) -> Text:
    from rich.text import Text

    return Text(f"{STATE_MARK.get(name, ' ')} {name}", style=STATE_STYLE.get(name, ""))


def number(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.4g}"


def print_json(answer: Any) -> None:
    print(json.dumps(answer, indent=2))
