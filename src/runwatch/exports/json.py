"""Points as one JSON array, one object per line; see `rows.py` for the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from runwatch.exports import text
from runwatch.exports.rows import COLUMNS, ExportBatch, Head

_END = ",\n"


def json_text(batches: Iterable[ExportBatch]) -> Iterator[str]:
    """The text in chunks.  An array without its end means that the export failed."""
    separator = "[\n"
    for batch in batches:
        objects = text.lines(
            batch,
            text.heads(batch, _head),
            text.integers(batch.step, absent="null"),
            text.numbers(batch.value, exponents=False, quote='"'),
            text.tails(batch, _tail),
            around_time=(',"time":"', '","value":'),
        )
        yield separator + objects.removesuffix(_END)
        separator = _END
    yield "\n]\n" if separator == _END else "[]\n"


def _head(head: Head) -> str:
    run, attempt, host, process, device, metric = head
    known = (run, attempt, host, process, device or None, metric)
    named = dict(zip(COLUMNS, known, strict=False))
    return msgspec.json.encode(named).decode()[:-1] + ',"step":'


def _tail(rank: int) -> str:
    return f',"rank":{rank}}}{_END}'
