"""Points as one JSON array of objects, a line each; see `rows.py` for the keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from runwatch.exports.csv import spelled
from runwatch.exports.rows import ExportBatch
from runwatch.views.times import rfc3339


class _Row(msgspec.Struct):
    run: str
    attempt: int | None
    host: str
    process: int
    device: str | None
    metric: str
    step: int | None
    time: str
    value: float | str


def json_text(batches: Iterable[ExportBatch]) -> Iterator[str]:
    """The text in pieces; an array that is cut off was not finished."""
    encode = msgspec.json.Encoder().encode
    separator = "[\n"
    for batch in batches:
        lines = [encode(row).decode() for row in _rows(batch)]
        if lines:
            yield separator + ",\n".join(lines)
            separator = ",\n"
    yield "\n]\n" if separator == ",\n" else "[]\n"


def _rows(batch: ExportBatch) -> Iterator[_Row]:
    for index, value in enumerate(batch.value):
        yield _Row(
            batch.run[index],
            batch.attempt[index],
            batch.host[index],
            batch.process[index],
            batch.device[index] or None,
            batch.metric[index],
            batch.step[index],
            rfc3339(batch.time_ns[index]),
            value if math.isfinite(value) else spelled(value),
        )
