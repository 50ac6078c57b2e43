"""A Parquet file from columns that arrive a stretch at a time, in bounded memory.

The engine writes a Parquet file in one go, so the stretches wait in a scratch database on the same
disk until the last has arrived.  The file gets its name when it is complete.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import duckdb
import numpy as np
import numpy.typing as npt

ColumnKind = Literal["text", "integer", "number", "time"]
"""`time` is ns since the epoch; empty text and integers that are None become NULL."""

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
    # The engine reads a NaN in an array as NULL; our NaNs are values that a run produced.
    "number": "coalesce({0}::DOUBLE, 'nan'::DOUBLE)",
    # A plain cast would read the number as a time in the machine's own time zone.
    "time": "timezone('UTC', make_timestamp_ns({0}::BIGINT))",
}


class ParquetWriter:
    """Use it in a `with` block.  If an error leaves the block, there is no file."""

    def __init__(
        self, path: Path, columns: Mapping[str, ColumnKind], *, memory_limit: str = "256MB"
    ) -> None:
        self._path = path
        self._columns = dict(columns)
        self._memory_limit = memory_limit
        self._open = ExitStack()

    def __enter__(self) -> ParquetWriter:
        with ExitStack() as opening:
            scratch = opening.enter_context(
                tempfile.TemporaryDirectory(prefix=".parquet-", dir=self._path.parent)
            )
            self._scratch = Path(scratch)
            self._connection = opening.enter_context(
                duckdb.connect(
                    str(self._scratch / "rows.duckdb"),
                    config={"memory_limit": self._memory_limit, "threads": 1},
                )
            )
            typed = ", ".join(f'"{n}" {_TYPES[kind]}' for n, kind in self._columns.items())
            self._connection.execute(f"CREATE TABLE waiting ({typed})")
            self._open = opening.pop_all()
        casts = ", ".join(_CASTS[kind].format(f'"{n}"') for n, kind in self._columns.items())
        self._insert = f"INSERT INTO waiting SELECT {casts} FROM stretch"
        return self

    def append(self, columns: Mapping[str, Sequence[Any]]) -> None:
        arrays = {name: _array(columns[name], kind) for name, kind in self._columns.items()}
        self._connection.register("stretch", arrays)
        self._connection.execute(self._insert)
        self._connection.unregister("stretch")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            if error is None:
                self._finish()

    def _finish(self) -> None:
        complete = self._scratch / "made.parquet"
        quoted = str(complete).replace("'", "''")
        self._connection.execute(
            f"COPY waiting TO '{quoted}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
        )
        os.replace(complete, self._path)


def _array(values: Sequence[Any], kind: ColumnKind) -> npt.NDArray[Any]:
    if kind == "text":
        return np.array(values, dtype=object)
    if kind == "number":
        return np.asarray(values, np.float64)
    return np.array([_ABSENT if value is None else value for value in values], np.int64)
