"""Whether a run's accelerators worked while its program recorded nothing: then it was not stuck.

Only doubtful stretches are looked at: longer ones that the account calls a stall, slow, or
unattributed.  The activity of the tensor cores is compared with what it was just before.
"Utilisation" of a GPU says nothing: a GPU counts as utilised while a collective waits for a lost
rank.
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
"""Devices are sampled once a second: a shorter stretch has too few samples."""
MOST: Final = 32
BEFORE_NS: Final = 60_000_000_000
AT_WORK: Final = 0.5
"""They worked if they did at least this part of what they did before."""
LEAST_PERCENT: Final = 1.0


def worked(reading: Reading, run: RunId, goodput: Goodput) -> list[Range]:
    """The stretches in which the devices went on as before; the longest are looked at."""
    by_metric = (reading.store.series(run, metric=metric) for metric in TENSOR_ACTIVITY)
    series = [row.series for rows in by_metric for row in rows]
    if not series:
        return []
    doubtful = [
        (interval.start_ns, interval.end_ns)
        for spent in DOUBTFUL
        for interval in goodput.of_class(spent, goodput.start_ns, goodput.end_ns, LEAST_NS)
    ]
    longest = sorted(doubtful, key=lambda stretch: stretch[0] - stretch[1])[:MOST]
    return sorted(stretch for stretch in longest if _worked(reading, series, *stretch))


def _worked(reading: Reading, series: Sequence[int], start_ns: int, end_ns: int) -> bool:
    before = _mean(reading, series, start_ns - BEFORE_NS, start_ns)
    meanwhile = _mean(reading, series, start_ns, end_ns)
    if before is None or meanwhile is None or before < LEAST_PERCENT:
        return False
    return meanwhile >= AT_WORK * before


def _mean(reading: Reading, series: Sequence[int], start_ns: int, end_ns: int) -> float | None:
    rows = dict.fromkeys(series, 0)
    means = reading.store.matrix(rows, start=start_ns, end=end_ns, buckets=1)[0].tolist()
    values = [value for value in means if isfinite(value)]
    return sum(values) / len(values) if values else None
