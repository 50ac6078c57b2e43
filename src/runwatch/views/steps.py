"""How many steps a run has done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runwatch.record import RunId
from runwatch.rows import Latest, SeriesRow


def last_steps(series: Iterable[SeriesRow], latest: Mapping[int, Latest]) -> dict[RunId, int]:
    """The highest step among the newest points of each run; runs without steps are left out."""
    highest: dict[RunId, int] = {}
    for row in series:
        point = latest.get(row.series)
        if point is not None and point.step is not None:
            highest[row.run] = max(highest.get(row.run, point.step), point.step)
    return highest
