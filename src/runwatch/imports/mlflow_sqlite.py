"""MLflow's SQLite store, `mlflow.db`: the default of newer versions."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.imports.growing import identity, size
from runwatch.imports.items import (
    Item,
    LeftOut,
    Mark,
    NotALog,
    Point,
    Reached,
    Source,
    SourceChanged,
)
from runwatch.imports.mlflow_runs import About, told
from runwatch.record import NO_STEP
from runwatch.store import mlflow_tables
from runwatch.store.mlflow_tables import CannotRead, MlflowPoint, MlflowRun

_STREAM: Final = "metrics"


def sources(path: Path) -> Iterator[Source]:
    try:
        found = [run for run in mlflow_tables.runs(path) if not run.is_deleted]
    except CannotRead as error:
        raise NotALog(str(error)) from error
    names = {run.id: run.name for run in found}
    for run in found:
        about = _about(run, names)
        yield Source(
            "mlflow",
            path,
            about.name or about.id,
            identity("mlflow sqlite", about.id),
            _reader(path, about),
            about.group,
            size(path) // len(found),
        )


def _reader(path: Path, about: About) -> Any:
    return lambda marks: _read(path, about, marks)


def _about(run: MlflowRun, names: Mapping[str, str]) -> About:
    parent = run.tags.get("mlflow.parentRunId", "")
    return About(
        run.id,
        run.name or run.tags.get("mlflow.runName", ""),
        run.status,
        run.start_ms,
        run.end_ms,
        run.experiment,
        run.user,
        run.is_deleted,
        run.params,
        run.tags,
        names.get(parent) or parent,
    )


def _read(path: Path, about: About, marks: Mapping[str, Mark]) -> Iterator[Item]:
    yield from told(about, marks)
    mark = marks.get(_STREAM) or {}
    row, count = int(mark.get("row", 0)), int(mark.get("count", 0))
    try:
        if row and mlflow_tables.count(path, about.id, row) != count:
            raise SourceChanged(
                f"{path}: metrics of run {about.name or about.id} that were imported before are no "
                "longer there, or the database was rebuilt. Import it as another run: --run NAME"
            )
        for page in mlflow_tables.points(path, about.id, row):
            yield from map(_point, page)
            row, count = page[-1].row, count + len(page)
            yield Reached(_STREAM, {"row": row, "count": count})
    except CannotRead as error:
        raise NotALog(str(error)) from error


def _point(point: MlflowPoint) -> Item:
    value = math.nan if point.is_nan else point.value
    if abs(value) == sys.float_info.max:  # how MLflow writes an infinity into SQL
        value = math.copysign(math.inf, value)
    if point.timestamp_ms is None or point.timestamp_ms < 0:
        return LeftOut("points without a valid time")
    step = NO_STEP if point.step is None else point.step
    return Point(point.key, step, point.timestamp_ms * 1_000_000, value)
