"""Points as lines of JSON, one for each stretch of a series: for programs that follow a run.

A line has what is known of the series (its number, metric, unit, labels, rank, host, device,
attempt, and whether an agent measured it) and three lists of equal length: `time_ns`, `step` (null
where a point has none) and `value` (the words NaN, Infinity and -Infinity where it is no number).
Series come one after another, each in the order of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from runwatch.exports.rows import BATCH_ROWS
from runwatch.record import NO_STEP, RunId
from runwatch.rows import SeriesRow
from runwatch.store.store import PointColumns, Store
from runwatch.views.attempts import attempts
from runwatch.views.series import Question, attempt_of, choose

MEDIA_TYPE: Final = "application/x-ndjson"


def stretch_lines(
    store: Store,
    run: RunId,
    *,
    question: Question | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[str]:
    """The text, a page of points at a time."""
    processes = store.processes(run)
    numbers = attempts(processes)
    agents = {row.journal for row in processes if row.role == "agent"}
    chosen = choose(store.series(run), question or Question(), numbers)
    known = {
        row.series: _about(row, attempt_of(row, numbers), row.journal in agents) for row in chosen
    }
    for columns in store.points(list(known), start_ns=start_ns, end_ns=end_ns, rows=rows):
        yield "".join(_lines(columns, known))


def _about(row: SeriesRow, attempt: int | None, is_agents: bool) -> dict[str, Any]:
    return {
        "series": row.series,
        "metric": row.metric,
        "unit": row.unit,
        "labels": dict(row.labels),
        "rank": row.rank,
        "host": row.host,
        "device": row.device,
        "attempt": attempt,
        "agent": is_agents,
    }


def _lines(columns: PointColumns, known: dict[int, dict[str, Any]]) -> Iterator[str]:
    for series, rows in columns.by_series():
        steps: Sequence[int | None] = columns.step[rows].tolist()
        if (columns.step[rows] == NO_STEP).any():
            steps = [None if step == NO_STEP else step for step in steps]
        numbers = {
            "time_ns": columns.time_ns[rows].tolist(),
            "step": steps,
            "value": _values(columns.value[rows].tolist()),
        }
        yield msgspec.json.encode(known[series] | numbers).decode() + "\n"


def _values(values: list[float]) -> list[float | str]:
    if all(map(math.isfinite, values)):
        return list(values)
    return [value if math.isfinite(value) else _WORDS[str(value)] for value in values]


_WORDS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
