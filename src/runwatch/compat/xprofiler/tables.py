"""How instances are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runwatch.compat.xprofiler.backend import Instance

COLUMNS: Final = ("Log_Directory", "URL", "Name", "Zone")


def table(instances: Sequence[Instance]) -> str:
    """Columns two blanks apart, under a line of dashes."""
    rows = [(one.log_directory, one.url, one.name, one.zone) for one in instances]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = [COLUMNS, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
