"""Events of a journal that says very much: of each kind the newest are enough for any view."""

from __future__ import annotations

from typing import Final

from runwatch.store.store import AGENTS_SAY

OF_EACH_BYTES: Final = 16 << 20
"""Of bodies: as Python's objects they take some five times as much."""
LONGEST_BODY: Final = 0xFFFF * 8


def newest_of_each(rows: str, most: int) -> str:
    """The keys of the rows that are kept: their bodies are not held for that.

    `rows`: a query for journal, kind, time_ns, place and the body's size.
    """
    newest = "OVER (PARTITION BY journal, kind ORDER BY time_ns DESC, place DESC"
    count, size = f"row_number() {newest})", f"sum(size) {newest} ROWS UNBOUNDED PRECEDING)"
    allowed = f"if(role = 'agent', {most * AGENTS_SAY}, {most})"
    return (
        f"SELECT journal, kind, place FROM ({rows}) "
        "LEFT JOIN (SELECT number, role FROM journals) ON number = journal "
        f"QUALIFY {count} <= {allowed} AND ({count} = 1 OR {size} <= {OF_EACH_BYTES})"
    )
