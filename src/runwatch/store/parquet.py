"""A Parquet file from columns that come a stretch at a time, in bounded memory.

The engine writes a Parquet file in one go, so the stretches wait in a scratch database on the
same disk until the last has come.  The file appears under its name when it is complete.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import duckdb
import numpy as np
import numpy.typing as npt

ColumnKind = Literal["text", "integer", "number", "time"]
"""`time` is nanoseconds since the epoch; empty text and None become NULL."""

_ABSENT: Final = -(2**63)
_TYPES: Final[dict[ColumnKind, str]] = {
    "text": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "time": "TIMESTAMPTZ_NS",
}
_CASTS: Final[dict[ColumnKind, str]] = {
    "text": "nullif({0}::VARCHAR, '')",
    "integer": f"nullif({{0}}::BIGINT, {_ABSENT})",
    "number": "{0}::DOUBLE",
    "time": "make_timestamp_ns({0}::BIGINT)::TIMESTAMPTZ_NS",
}


class ParquetWriter:
    def __init__(
        self, path: Path, columns: Mapping[str, ColumnKind], *, memory_limit: str = "256MB"
    ) -> None:
        self._path = path
        self._columns = dict(columns)
        self._scratch = tempfile.TemporaryDirectory(prefix=".parquet-", dir=path.parent)
        self._connection = duckdb.connect(
            os.path.join(self._scratch.name, "rows.duckdb"),
            config={"memory_limit": memory_limit, "threads": 1, "TimeZone": "UTC"},
        )
        typed = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in self._columns.items())
        self._connection.execute(f"CREATE TABLE waiting ({typed})")
        casts = ", ".join(_CASTS[kind].format(f'"{n}"') for n, kind in self._columns.items())
        self._insert = f"INSERT INTO waiting SELECT {casts} FROM stretch"

    def append(self, columns: Mapping[str, Sequence[Any]]) -> None:
        arrays = {name: _array(columns[name], kind) for name, kind in self._columns.items()}
        self._connection.register("stretch", arrays)
        self._connection.execute(self._insert)
        self._connection.unregister("stretch")

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._connection.close()
            self._scratch.cleanup()

    def _finish(self) -> None:
        made = Path(self._scratch.name, "made.parquet")
        quoted = str(made).replace("'", "''")
        self._connection.execute(
            f"COPY waiting TO '{quoted}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
        )
        os.replace(made, self._path)


def _array(values: Sequence[Any], kind: ColumnKind) -> npt.NDArray[Any]:
    if kind == "text":
        return np.array(values, dtype=object)
    if kind == "number":
        return np.asarray(values, np.float64)
    return np.array([_ABSENT if value is None else value for value in values], np.int64)
