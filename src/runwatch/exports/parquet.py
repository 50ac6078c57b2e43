"""Points as a Parquet file; see `rows.py` for the columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runwatch.exports.rows import ExportBatch
from runwatch.store.duck.parquet import ColumnKind, ParquetWriter

_KINDS: Final[dict[str, ColumnKind]] = {
    "run": "text",
    "attempt": "integer",
    "host": "text",
    "process": "integer",
    "device": "text",
    "metric": "text",
    "step": "integer",
    "time": "time",
    "value": "number",
    "rank": "integer",
}


def write_parquet(batches: Iterable[ExportBatch], path: Path) -> int:
    """Write the file, whole or not at all; returns the number of rows."""
    rows = 0
    with ParquetWriter(path, _KINDS) as writer:
        for batch in batches:
            rows += len(batch)
            writer.append(
                {
                    "run": batch.run,
                    "attempt": batch.attempt,
                    "host": batch.host,
                    "process": batch.process,
                    "device": batch.device,
                    "metric": batch.metric,
                    "step": batch.step,
                    "time": batch.time_ns,
                    "value": batch.value,
                    "rank": batch.process,
                }
            )
    return rows
