"""Tables: one look for the terminal and for README.md, and the raw numbers beside them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass
class Table:
    title: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        rows = [list(self.head), *[list(row) for row in self.rows]]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.head))]
        lines = [_line(row, widths) for row in rows]
        lines.insert(1, _line(["-" * width for width in widths], widths))
        notes = [f"{note}  " for note in self.notes]
        return "\n".join([f"### {self.title}", "", *lines, "", *notes])


@dataclass
class Outcome:
    """What one benchmark found."""

    tables: list[Table]
    numbers: dict[str, Any]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |"


def at_most(value: float, bar: float, unit: str, digits: int = 2) -> tuple[str, str]:
    """The bar, and whether it is met or by how much not."""
    over = value - bar
    return f"≤ {bar:g} {unit}", "pass" if over <= 0 else f"short by {over:.{digits}g} {unit}"


def at_least(value: float, bar: float, unit: str) -> tuple[str, str]:
    under = bar - value
    return f"≥ {bar:g} {unit}", "pass" if under <= 0 else f"short by {under:.2g} {unit}"


NO_BAR = ("", "")


def machine() -> str:
    memory = psutil.virtual_memory().total / 1e9
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GB, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"{time.strftime('%Y-%m-%d')}, load {load:.1f} at the start"
    )
