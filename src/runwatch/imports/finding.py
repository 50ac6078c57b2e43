"""Which runs lie below a path, by what the files hold; names only say where to look.

In a folder we look for what cannot be mistaken: event files, wandb's files, MLflow's stores, and
what gswarm and ml-goodput-measurement leave.  A table or a JSON file may be anything: it is read
when it is named itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from runwatch.errors import NotFound, UsageError
from runwatch.imports import metric_entries, mlflow_files, mlflow_sqlite, tables, tensorboard, wandb
from runwatch.imports.items import NotALog, Source
from runwatch.store import mlflow_tables
from runwatch.wire import gswarm_frames

Wanted = Literal[
    "tensorboard", "wandb", "mlflow", "csv", "json", "mldiagnostics", "goodput", "gswarm"
]
WANTED: Final[tuple[Wanted, ...]] = (
    "tensorboard", "wandb", "mlflow", "csv", "json", "mldiagnostics", "goodput", "gswarm",
)  # fmt: skip
_DATABASES: Final = (".db", ".sqlite", ".sqlite3")
_PICKLES: Final = ("buffered_metrics_", "metrics_history_")
_FRAMES: Final = "frames.jsonl"
_SESSION: Final = (b'"frame_id"', b'"frames"', b'"summary_by_device"')
_TIMELINE: Final = "_timeline.jsonl"
_PEEK: Final = 64 << 10


@dataclass(slots=True)
class Found:
    sources: list[Source] = field(default_factory=list)
    others: list[tuple[Wanted, Path]] = field(default_factory=list)
    """Logs of gswarm and of ml-goodput-measurement, whose readers are elsewhere."""

    def __bool__(self) -> bool:
        return bool(self.sources or self.others)


def find(path: Path, wanted: Wanted | None = None) -> Found:
    """Everything below the path that can be imported.  Raises if there is nothing."""
    if not path.exists():
        raise NotFound(f"there is no {path}")
    found = _in_folder(path, wanted) if path.is_dir() else _in_file(path, wanted)
    if not found:
        raise NotALog(_nothing(path, wanted))
    return found


def _nothing(path: Path, wanted: Wanted | None) -> str:
    if wanted is not None:
        return f"{path} holds nothing of {wanted}"
    if path.is_dir():
        return (
            f"{path} holds no TensorBoard log, wandb run or MLflow store, nor anything that gswarm "
            "or ml-goodput-measurement leaves; name CSV and JSON files themselves"
        )
    return (
        f"{path} is nothing that can be imported: no TensorBoard event file, wandb run, MLflow "
        "database, CSV with a step or a time, export of Runwatch, nor log of an original"
    )


# ── a folder ──────────────────────────────────────────────────────────────────────────────────


def _in_folder(root: Path, wanted: Wanted | None) -> Found:
    found = Found()
    events: list[Path] = []
    for file in _files(root):
        if isinstance(file, _MlflowRun):
            if wanted in (None, "mlflow"):
                found.sources += mlflow_files.sources([file.path])
        elif tensorboard.FILE in file.name:
            events += [file] if wanted in (None, "tensorboard") else []
        else:
            _add(found, file, wanted)
    found.sources += tensorboard.sources(events, root)
    return found


@dataclass(frozen=True, slots=True)
class _MlflowRun:
    path: Path


def _files(root: Path) -> Iterator[Path | _MlflowRun]:
    """All files below, in order.  Links to folders are not followed, as TensorBoard does not.
    What lies in the folder of an MLflow run belongs to that run."""
    for place, folders, names in os.walk(root):
        here = Path(place)
        if mlflow_files.is_run(here):
            folders.clear()
            yield _MlflowRun(here)
            continue
        folders.sort()
        for name in sorted(names):
            if not (here / name).is_symlink() or here == root:
                yield here / name


def _add(found: Found, file: Path, wanted: Wanted | None) -> None:
    """A file in a folder, if its name suggests a form and its content has it."""
    name = file.name
    if name.endswith(".wandb") and wanted in (None, "wandb") and wandb.is_wandb(file):
        found.sources += wandb.sources([file])
    elif name.endswith(_DATABASES) and wanted in (None, "mlflow"):
        if mlflow_tables.is_mlflow(file):
            found.sources += mlflow_sqlite.sources(file)
    elif name.endswith(_TIMELINE) and wanted in (None, "goodput"):
        if _log_kind(file) == "goodput":
            found.others.append(("goodput", file))
    elif wanted in (None, "gswarm") and _is_of_gswarm(file):
        found.others.append(("gswarm", file))


def _is_of_gswarm(file: Path) -> bool:
    if file.name == _FRAMES:
        return gswarm_frames.first_frame(file) is not None
    return file.name.startswith(_PICKLES) and file.suffix == ".pkl"


# ── a file ────────────────────────────────────────────────────────────────────────────────────


def _in_file(path: Path, wanted: Wanted | None) -> Found:
    found = Found()
    kinds = [wanted] if wanted else kinds_of(path)
    for kind in kinds:
        _add_as(found, path, kind)
    return found


def _add_as(found: Found, path: Path, kind: Wanted) -> None:
    if kind == "tensorboard":
        found.sources += tensorboard.sources([path], path.parent)
    elif kind == "wandb":
        found.sources += wandb.sources([path])
    elif kind == "mlflow":
        found.sources += mlflow_sqlite.sources(path)
    elif kind == "csv":
        found.sources += tables.csv_sources(path)
    elif kind == "json":
        found.sources += tables.json_sources(path)
    elif kind == "mldiagnostics":
        found.sources += metric_entries.sources(path)
    else:
        found.others.append((kind, path))


def kinds_of(path: Path) -> list[Wanted]:
    """What a file holds; an export of Cloud Logging may hold several logs."""
    kind = _kind_of(path)
    if kind in ("goodput", "mldiagnostics"):
        return _logs_in(path)
    return [kind] if kind is not None else []


def _logs_in(path: Path) -> list[Wanted]:
    found: dict[Wanted, None] = {}
    for entry in metric_entries.objects(path):
        if (kind := _entry_kind(entry)) is not None:
            found[kind] = None
    return list(found)


def _kind_of(path: Path) -> Wanted | None:
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if tensorboard.first_event(path) is not None:
        return "tensorboard"
    if head.startswith(wandb.MAGIC):
        return "wandb"
    if head.startswith(mlflow_tables.MAGIC):
        return "mlflow" if mlflow_tables.is_mlflow(path) else None
    if head[:1] == b"\x80" and path.suffix == ".pkl":
        return "gswarm"
    if head.lstrip()[:1] in (b"{", b"["):
        return _json_kind(path, head)
    return "csv" if tables.form_of(path) is not None else None


def _json_kind(path: Path, head: bytes) -> Wanted | None:
    if tables.is_our_json(path):
        return "json"
    # A session is one document, which is read as a whole: only what looks like one.
    if any(mark in head for mark in _SESSION) and gswarm_frames.first_frame(path) is not None:
        return "gswarm"
    return _log_kind(path)


def _log_kind(path: Path) -> Wanted | None:
    return next(filter(None, map(_entry_kind, metric_entries.first_objects(path))), None)


def _entry_kind(entry: Mapping[str, Any]) -> Wanted | None:
    if metric_entries.is_metric_entry(entry):
        return "mldiagnostics"
    payload = entry.get("jsonPayload", entry)
    return "goodput" if isinstance(payload, dict) and "job_name" in payload else None
