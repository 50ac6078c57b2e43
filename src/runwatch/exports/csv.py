"""Points as CSV with a header; see `rows.py` for the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from runwatch.exports import text
from runwatch.exports.rows import COLUMNS, ExportBatch, Head

_END = "\r\n"


def csv_text(batches: Iterable[ExportBatch]) -> Iterator[str]:
    """The text in chunks; the header comes first."""
    yield ",".join(COLUMNS) + _END
    for batch in batches:
        yield text.lines(
            batch,
            text.heads(batch, _head),
            text.integers(batch.step, absent=""),
            text.numbers(batch.value, exponents=True),
            text.tails(batch, _tail),
            around_time=(",", ","),
        )


def _head(head: Head) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator=_END).writerow(head)
    return row.getvalue().removesuffix(_END) + ","


def _tail(rank: int) -> str:
    return f",{rank}{_END}"
