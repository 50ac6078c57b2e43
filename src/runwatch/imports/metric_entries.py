"""Metrics that google-cloud-mldiagnostics sent to Cloud Logging, as `gcloud logging read
--format=json` writes them: entries of the log `ml_diagnostics_metric`.

The resource names the run (`node_id`) and the metric (`namespace`); the payload has the value and
perhaps a step, a host and a process.  Entries come in any order, and every export covers another
stretch of time: what is later than the latest that was imported is new.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.imports.growing import identity, size
from runwatch.imports.items import (
    MAIN,
    Item,
    Lane,
    LeftOut,
    Mark,
    NotALog,
    Point,
    Reached,
    Settings,
    Source,
    Text,
)
from runwatch.imports.json_objects import json_objects
from runwatch.imports.tables import parsed_time
from runwatch.record import NO_STEP

LOG: Final = "/logs/ml_diagnostics_metric"
CONFIGS: Final = "mlrun_configs"
_STREAM: Final = "entries"
_FEW: Final = 20
_LABELS: Final = ("hostname", "accelerator_type", "unit")

Entry = Mapping[str, Any]
_Key = tuple[int, str]
"""When an entry was logged, and the id that Cloud Logging gave it."""


def objects(path: Path) -> Iterator[dict[str, Any]]:
    with _opened(path) as entries:
        yield from entries


def first_objects(path: Path) -> list[dict[str, Any]]:
    """Enough to say what they are; [] if it is not JSON objects that the file holds."""
    try:
        return list(islice(objects(path), _FEW))
    except UsageError:
        return []


def is_metric_entry(entry: Entry) -> bool:
    return LOG in str(entry.get("logName", "")) and "resource" in entry


def sources(path: Path) -> Iterator[Source]:
    projects: dict[str, str] = {}
    with _opened(path) as entries:
        for entry in entries:
            if is_metric_entry(entry):
                projects.setdefault(_label(entry, "node_id"), _label(entry, "project_id"))
    if not projects:
        raise NotALog(f"{path} has no entry of the log ml_diagnostics_metric")
    for run, project in projects.items():
        yield Source(
            "mldiagnostics",
            path,
            run or "run",
            identity("mldiagnostics", project, run),
            _reader(path, run),
            bytes=size(path),
        )


def _reader(path: Path, run: str) -> Any:
    return lambda marks: _read(path, run, marks)


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield json_objects(file, path)
    except (OSError, UnicodeDecodeError) as error:
        raise NotALog(f"cannot read {path}: {error}") from error


def _read(path: Path, run: str, marks: Mapping[str, Mark]) -> Iterator[Item]:
    mark = marks.get(_STREAM) or {}
    known: _Key = (int(mark.get("time_ns", -1)), str(mark.get("id", "")))
    newest, seen = known, set()
    with _opened(path) as entries:
        for entry in entries:
            if not is_metric_entry(entry) or _label(entry, "node_id") != run:
                continue
            key = _key(entry)
            if key is None:
                yield LeftOut("entries without a time")
            elif key > known and (short := zlib.crc32(key[1].encode()) << 64 | key[0]) not in seen:
                seen.add(short)
                newest = max(newest, key)
                yield from _items(entry, key[0])
    yield Reached(_STREAM, {"time_ns": newest[0], "id": newest[1]}, size(path))


def _key(entry: Entry) -> _Key | None:
    time_ns = parsed_time(str(entry.get("timestamp", "")))
    if time_ns is None:
        return None
    return time_ns, str(entry.get("insertId") or identity(repr(sorted(entry.items()))))


def _items(entry: Entry, time_ns: int) -> Iterator[Item]:
    payload, name = entry.get("jsonPayload"), _label(entry, "namespace")
    if not isinstance(payload, Mapping):
        yield LeftOut("entries without a JSON payload")
        return
    if name == CONFIGS:
        values = payload.get("userConfigs")
        yield Settings("user", values if isinstance(values, Mapping) else payload, time_ns)
        return
    values = payload.get("values")
    if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
        yield Text(name, payload.get("message", dict(payload)), time_ns, _step(payload))
        return
    devices = payload.get("accelerator_labels")
    several = isinstance(devices, list) and len(devices) == len(values) > 1
    labels = tuple((key, str(payload[key])) for key in _LABELS if payload.get(key))
    for at, value in enumerate(values):
        device = str(devices[at]) if several and devices is not None else ""
        yield Point(name, _step(payload), time_ns, float(value), _lane(payload), device, labels)


def _step(payload: Mapping[str, Any]) -> int:
    step = payload.get("step_index")
    if isinstance(step, str) and step.lstrip("-").isdecimal():
        return int(step)
    if isinstance(step, int | float) and step == step and abs(step) < 1 << 62:
        return int(step)
    return NO_STEP


def _lane(payload: Mapping[str, Any]) -> Lane:
    rank = str(payload.get("process_index", ""))
    return Lane(int(rank)) if rank.isdecimal() and int(rank) < 1 << 20 else MAIN


def _label(entry: Entry, name: str) -> str:
    resource = entry.get("resource")
    labels = resource.get("labels") if isinstance(resource, Mapping) else None
    return str(labels.get(name, "")) if isinstance(labels, Mapping) else ""
