"""One row per point, the same ten columns in every format.

run      the run's id
attempt  counted from 1; a number about a host belongs to the attempt that ran at its time
host     where it was measured
process  the rank; an older name of the column `rank`, kept for readers that use it
device   empty (null) if the number is not about one device
metric   its name, unit included
step     empty (null) if the point has none
time     UTC, exact to the nanosecond: RFC 3339 text in CSV and JSON, a timestamp in Parquet
value    a double; CSV and JSON write NaN, Infinity and -Infinity as words
rank     the rank
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from runwatch.record import NO_STEP, RunId
from runwatch.rows import SeriesRow
from runwatch.store.store import PointColumns, Store
from runwatch.views.attempts import attempts
from runwatch.views.series import AttemptOf, Question, attempt_of, choose

COLUMNS: Final = (
    "run",
    "attempt",
    "host",
    "process",
    "device",
    "metric",
    "step",
    "time",
    "value",
    "rank",
)
BATCH_ROWS: Final = 20_000


Head = tuple[str, int | None, str, int, str, str]
"""The columns before the step."""


@dataclass(slots=True)
class ExportBatch:
    run: list[str] = field(default_factory=list)
    attempt: list[int | None] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    device: list[str] = field(default_factory=list)
    metric: list[str] = field(default_factory=list)
    step: Sequence[int | None] = ()
    time_ns: Sequence[int] = ()
    value: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.value)

    def stretches(self) -> Iterator[tuple[Head, int]]:
        """Consecutive rows that differ only in step, time and value; and how many rows."""
        same = zip(
            self.run, self.attempt, self.host, self.process, self.device, self.metric, strict=True
        )
        for head, rows in groupby(same):
            yield head, len(list(rows))


def export_batches(
    store: Store,
    run: RunId,
    *,
    question: Question | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[ExportBatch]:
    """The points of a run, ordered by series and time, at most `rows` in a batch."""
    processes = store.processes(run)
    numbers = attempts(processes)
    chosen = choose(store.series(run), question or Question(), numbers)
    describe = _Describe(
        chosen,
        numbers,
        sorted(
            (row.start_ns, numbers[row.journal, row.run])
            for row in processes
            if (row.journal, row.run) in numbers
        ),
    )
    pages = store.points(list(describe.series), start_ns=start_ns, end_ns=end_ns, rows=rows)
    for columns in pages:
        yield describe.batch(columns)


class _Describe:
    def __init__(
        self, chosen: Sequence[SeriesRow], numbers: AttemptOf, starts: Sequence[tuple[int, int]]
    ) -> None:
        self.series = {row.series: row for row in chosen}
        self._attempt = {row.series: attempt_of(row, numbers) for row in chosen}
        self._start_ns = np.array([start_ns for start_ns, _ in starts], np.int64)
        newest = accumulate((attempt for _, attempt in starts), max)
        self._newest: list[int | None] = [None, *newest]
        """Index: the number of starts so far.  Value: the attempt."""

    def batch(self, columns: PointColumns) -> ExportBatch:
        batch = ExportBatch(
            step=_steps(columns.step),
            # An array is a sequence of plain numbers, and numpy reads it without a copy.
            time_ns=array("q", columns.time_ns.tobytes()),
            value=array("d", columns.value.tobytes()),
        )
        starts = np.flatnonzero(np.diff(columns.series, prepend=columns.series[0] - 1))
        counts = np.diff(starts, append=len(batch)).tolist()
        for series, count in zip(columns.series[starts].tolist(), counts, strict=True):
            self._extend(batch, self.series[series], count)
        return batch

    def _extend(self, batch: ExportBatch, row: SeriesRow, count: int) -> None:
        begin = len(batch.run)
        batch.run += [row.run] * count
        batch.host += [row.host] * count
        batch.process += [row.rank] * count
        batch.device += [row.device] * count
        batch.metric += [row.metric] * count
        attempt = self._attempt[row.series]
        if attempt is not None:
            batch.attempt += [attempt] * count
        else:
            batch.attempt += self._attempts_at(batch.time_ns[begin : begin + count])

    def _attempts_at(self, time_ns: Sequence[int]) -> list[int | None]:
        places = np.searchsorted(self._start_ns, np.asarray(time_ns, np.int64), side="right")
        return [self._newest[place] for place in places.tolist()]


def _steps(column: npt.NDArray[np.int64]) -> list[int | None]:
    steps: list[int | None] = column.tolist()
    if (column == NO_STEP).any():
        return [None if step == NO_STEP else step for step in steps]
    return steps
