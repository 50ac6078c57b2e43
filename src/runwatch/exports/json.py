"""Points as one JSON array of objects, a line each; see `rows.py` for the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from runwatch.exports import text
from runwatch.exports.rows import COLUMNS, ExportBatch, Head

_END = ",\n"


def json_text(batches: Iterable[ExportBatch]) -> Iterator[str]:
    """The text in pieces; an array that is cut off was not finished."""
    separator = "[\n"
    for batch in batches:
        made = text.lines(
            batch,
            text.heads(batch, _head),
            text.integers(batch.step, absent="null"),
            text.numbers(batch.value, exponents=False, quote='"'),
            around_time=(',"time":"', '","value":'),
            end="}" + _END,
        )
        yield separator + made.removesuffix(_END)
        separator = _END
    yield "\n]\n" if separator == _END else "[]\n"


def _head(head: Head) -> str:
    run, attempt, host, process, device, metric = head
    known = (run, attempt, host, process, device or None, metric)
    named = dict(zip(COLUMNS, known, strict=False))
    return msgspec.json.encode(named).decode()[:-1] + ',"step":'
