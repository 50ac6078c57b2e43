"""Points as comma-separated text with a header; see `rows.py` for the columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence

from runwatch.exports.rows import COLUMNS, ExportBatch
from runwatch.views.times import rfc3339


def csv_text(batches: Iterable[ExportBatch]) -> Iterator[str]:
    """The text in pieces, the header first."""
    yield ",".join(COLUMNS) + "\r\n"
    for batch in batches:
        piece = io.StringIO()
        csv.writer(piece).writerows(
            zip(
                batch.run,
                batch.attempt,
                batch.host,
                batch.process,
                batch.device,
                batch.metric,
                batch.step,
                map(rfc3339, batch.time_ns),
                _numbers(batch.value),
                strict=True,
            )
        )
        yield piece.getvalue()


def _numbers(values: Sequence[float]) -> Iterator[float | str]:
    return (value if math.isfinite(value) else spelled(value) for value in values)


def spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
