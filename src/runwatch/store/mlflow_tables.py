"""The tables of MLflow's SQLite store (`mlflow.db`), as far as `runwatch import` reads them.

They are MLflow's own.  We only read; a server may write meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

MAGIC: Final = b"SQLite format 3\0"
PAGE: Final = 10_000
_TABLES: Final = {"experiments", "runs", "metrics", "params", "tags"}
_NAMED: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_RUNS: Final = """
    SELECT runs.run_uuid, runs.name, runs.status, runs.start_time, runs.end_time, runs.user_id,
           runs.lifecycle_stage, experiments.name
    FROM runs LEFT JOIN experiments USING (experiment_id)
    ORDER BY runs.start_time, runs.run_uuid
"""
_PARAMS: Final = "SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key"
_TAGS: Final = "SELECT key, value FROM tags WHERE run_uuid = ? ORDER BY key"
_METRICS: Final = """
    SELECT rowid, key, value, timestamp, step, is_nan FROM metrics
    WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT ?
"""
_COUNTED: Final = "SELECT count(*) FROM metrics WHERE run_uuid = ? AND rowid <= ?"


class CannotRead(Exception):
    """SQLite refuses the file: it says why."""


@dataclass(frozen=True, slots=True)
class MlflowRun:
    id: str
    name: str
    status: str
    start_ms: int | None
    end_ms: int | None
    user: str
    is_deleted: bool
    experiment: str
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


class MlflowPoint(NamedTuple):
    row: int
    """Its place in the table: rows are only ever added."""
    key: str
    value: float
    timestamp_ms: int
    step: int
    is_nan: bool


def is_mlflow(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        with _asking(path) as tables:
            return {name for (name,) in tables.execute(_NAMED)} >= _TABLES
    except (OSError, CannotRead):
        return False


def runs(path: Path) -> list[MlflowRun]:
    with _asking(path) as tables:
        return [_run(tables, row) for row in tables.execute(_RUNS).fetchall()]


def _run(tables: sqlite3.Connection, row: tuple[Any, ...]) -> MlflowRun:
    id, name, status, start_ms, end_ms, user, stage, experiment = row
    return MlflowRun(
        id,
        name or "",
        status or "",
        start_ms,
        end_ms,
        user or "",
        stage == "deleted",
        experiment or "",
        dict(tables.execute(_PARAMS, (id,)).fetchall()),
        dict(tables.execute(_TAGS, (id,)).fetchall()),
    )


def points(path: Path, run: str, after_row: int = 0) -> Iterator[list[MlflowPoint]]:
    """The points of a run that were added after this row, in pages."""
    with _asking(path) as tables:
        while page := tables.execute(_METRICS, (run, after_row, PAGE)).fetchall():
            found = [MlflowPoint(*row) for row in page]
            yield found
            after_row = found[-1].row


def count(path: Path, run: str, up_to_row: int) -> int:
    with _asking(path) as tables:
        return int(tables.execute(_COUNTED, (run, up_to_row)).fetchone()[0])


@contextmanager
def _asking(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as tables:
            tables.text_factory = lambda data: data.decode("utf-8", "replace")
            yield tables
    except sqlite3.Error as error:
        raise CannotRead(f"cannot read {path}: {error}") from error
