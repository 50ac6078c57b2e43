"""How instances are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runwatch.compat.xprofiler.backend import Instance

COLUMNS: Final = ("Log_Directory", "URL", "Name", "Zone")


def table(instances: Sequence[Instance]) -> str:
    rows = [(one.log_directory, one.url, one.name, one.zone) for one in instances]
    return aligned(COLUMNS, rows)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two blanks apart, under a line of dashes."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [columns, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
