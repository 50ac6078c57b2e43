"""Whether a run's accelerators worked while its program told nothing: then it did not stand still.

Only what the account is in doubt about is looked at: longer stretches that it calls a stall, slow,
or unattributed.  What counts is the activity of tensor cores beside what it was just before.  That
a GPU is "utilised" says nothing: it is while a collective waits for a rank that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.views.goodput.account import DOUBTFUL, Goodput, Range
from runwatch.views.goodput.figures import TENSOR_ACTIVITY

LEAST_NS: Final = 5_000_000_000
"""Devices are sampled once a second: shorter stretches they know too little of."""
MOST: Final = 32
BEFORE_NS: Final = 60_000_000_000
AT_WORK: Final = 0.5
"""Times what they did before."""
LEAST_PERCENT: Final = 1.0


def worked(reading: Reading, run: RunId, goodput: Goodput) -> list[Range]:
    """The stretches in which the devices went on as before; the longest are looked at."""
    rows = (reading.store.series(run, metric=metric) for metric in TENSOR_ACTIVITY)
    series = [row.series for found in rows for row in found]
    if not series:
        return []
    doubtful = [
        (found.start_ns, found.end_ns)
        for spent in DOUBTFUL
        for found in goodput.of_class(spent, goodput.start_ns, goodput.end_ns, LEAST_NS)
    ]
    longest = sorted(doubtful, key=lambda found: found[0] - found[1])[:MOST]
    return sorted(found for found in longest if _worked(reading, series, *found))


def _worked(reading: Reading, series: Sequence[int], start_ns: int, end_ns: int) -> bool:
    before = _mean(reading, series, start_ns - BEFORE_NS, start_ns)
    meanwhile = _mean(reading, series, start_ns, end_ns)
    if before is None or meanwhile is None or before < LEAST_PERCENT:
        return False
    return meanwhile >= AT_WORK * before


def _mean(reading: Reading, series: Sequence[int], start_ns: int, end_ns: int) -> float | None:
    rows = dict.fromkeys(series, 0)
    found = reading.store.matrix(rows, start=start_ns, end=end_ns, buckets=1)[0].tolist()
    values = [value for value in found if isfinite(value)]
    return sum(values) / len(values) if values else None
