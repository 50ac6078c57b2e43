"""The tools that are measured, each with its own words for the same four things.

Statements are source text, so that a loop around them costs every tool the same and nothing more:
`scalar` records `value` as "loss" at `step`; `many` records the dict `values` at `step`.  This file
is imported by the interpreter that a tool lives in, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

Names = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    name: str
    module: str
    """What a user imports; empty for no tool at all."""
    open: Callable[[Path, Path], Names]
    """(directory of this trial, directory of this tool) → the names that the statements use."""
    scalar: str
    many: str
    close: str
    stored: Callable[[Path, Path], list[float]]
    """Every value of "loss" that can be read afterwards."""
    is_ours: bool = False


# ── Runwatch ──────────────────────────────────────────────────────────────────────────────────


def open_runwatch(directory: Path, home: Path) -> Names:
    run = import_module("runwatch").init("bench", dir=directory)
    return {"run": run, "metrics": import_module("runwatch.compat.mldiagnostics").metrics}


def stored_by_runwatch(directory: Path, home: Path) -> list[float]:
    reader_module = import_module("runwatch.journal.reader")
    record = import_module("runwatch.record")
    found: list[float] = []
    for journal in sorted((directory / "journals").iterdir()):
        reader = reader_module.JournalReader(journal)
        wanted: set[int] = set()
        while (batch := reader.read(final=True)) is not None:
            series = [d for d in batch.definitions if isinstance(d, record.Series)]
            wanted |= {d.id for d in series if d.metric == "loss"}
            points = batch.points
            pairs = zip(points.series, points.value, strict=True)
            found += [value for number, value in pairs if number in wanted]
        reader.close()
    return found


# ── wandb ─────────────────────────────────────────────────────────────────────────────────────


def open_wandb(directory: Path, home: Path) -> Names:
    os.environ["WANDB_SILENT"] = "true"
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    wandb = import_module("wandb")
    settings = wandb.Settings(console="off")
    return {
        "run": wandb.init(mode="offline", dir=str(directory), project="bench", settings=settings)
    }


def stored_by_wandb(directory: Path, home: Path) -> list[float]:
    messages = import_module("wandb.proto.wandb_internal_pb2")
    found: list[float] = []
    for path in (directory / "wandb").glob("offline-run-*/*.wandb"):
        for data in _log_records(path.read_bytes()):
            record = messages.Record()
            record.ParseFromString(data)
            items = [i for i in record.history.item if "loss" in (i.key, *i.nested_key)]
            found += [json.loads(item.value_json) for item in items]
    return found


def _log_records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format behind a header of 7 bytes; ends where a record is torn."""
    block, whole, first, last = 32 << 10, 1, 2, 4
    at, parts = 7, bytearray()
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + 7 : at + 7 + length]
        if not whole <= kind <= last or len(body) < length:
            return
        at += 7 + length
        parts = bytearray(body) if kind in (whole, first) else parts + body
        if kind in (whole, last):
            yield bytes(parts)


# ── trackio ───────────────────────────────────────────────────────────────────────────────────


def open_trackio(directory: Path, home: Path) -> Names:
    os.environ["TRACKIO_DIR"] = str(directory)
    os.environ["HF_HUB_OFFLINE"] = "1"
    trackio = import_module("trackio")
    return {"run": trackio.init(project="bench", name="bench"), "trackio": trackio}


def stored_by_trackio(directory: Path, home: Path) -> list[float]:
    path = directory / "bench.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT metrics FROM metrics").fetchall()
    return [row["loss"] for (text,) in rows if "loss" in (row := json.loads(text))]


# ── tensorboardX ──────────────────────────────────────────────────────────────────────────────


def open_tensorboardx(directory: Path, home: Path) -> Names:
    return {"writer": import_module("tensorboardX").SummaryWriter(str(directory / "events"))}


def stored_by_tensorboardx(directory: Path, home: Path) -> list[float]:
    messages = import_module("tensorboardX.proto.event_pb2")
    found: list[float] = []
    for path in (directory / "events").glob("events.*"):
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            if at + length + 16 > len(data):
                break
            event = messages.Event.FromString(data[at + 12 : at + 12 + length])
            at += length + 16
            found += [value.simple_value for value in event.summary.value if value.tag == "loss"]
    return found


# ── MLflow ────────────────────────────────────────────────────────────────────────────────────


def open_mlflow(directory: Path, home: Path) -> Names:
    # One database for all trials: making its tables takes longer than a trial.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"] = "false"
    mlflow = import_module("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{home}/mlflow.db")
    run = mlflow.start_run()
    (directory / "run_id").write_text(run.info.run_id)
    return {"mlflow": mlflow}


def stored_by_mlflow(directory: Path, home: Path) -> list[float]:
    run = (directory / "run_id").read_text()
    with closing(sqlite3.connect(home / "mlflow.db", timeout=60)) as database:
        query = "SELECT value FROM metrics WHERE run_uuid = ? AND key = 'loss'"
        return [value for (value,) in database.execute(query, [run])]


# ── google-cloud-mldiagnostics ────────────────────────────────────────────────────────────────


def open_mldiagnostics(directory: Path, home: Path) -> Names:
    """Its own recorder, queue and thread; what they export goes to a file and not to a network.

    Appending a batch to a file is the cheapest exporter there can be, in the tool's favour.
    """
    core = import_module("google_cloud_mldiagnostics.core.metrics")
    api = import_module("google_cloud_mldiagnostics.api.metrics")
    exporter = _LocalExporter(directory / "exported")
    run = SimpleNamespace(log_system_metrics=False)
    recorder = core.metrics_recorder
    recorder._is_master_host = True
    recorder._get_active_run_and_exporters = lambda: (run, [exporter], [])
    return {"metrics": api, "recorder": recorder}


class _LocalExporter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def export(self, batch: list[Any]) -> None:
        self._file.write(b"".join(b"%s %r\n" % (p.name.encode(), p.value) for p in batch))


def stored_by_mldiagnostics(directory: Path, home: Path) -> list[float]:
    path = directory / "exported"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith(b"loss ")]


RUNWATCH_LOG: Final = Tool(
    "Runwatch run.log",
    "runwatch",
    open_runwatch,
    "run.log(loss=value, step=step)",
    "run.log(values, step)",
    "run.finish()",
    stored_by_runwatch,
    is_ours=True,
)
RUNWATCH_RECORD: Final = Tool(
    "Runwatch metrics.record",
    "runwatch",
    open_runwatch,
    'metrics.record("loss", value, step=step)',
    "for name, number in values.items(): metrics.record(name, number, step=step)",
    "run.finish()",
    stored_by_runwatch,
    is_ours=True,
)
PEERS: Final = (
    Tool(
        "wandb, offline",
        "wandb",
        open_wandb,
        'run.log({"loss": value}, step=step)',
        "run.log(values, step=step)",
        "run.finish()",
        stored_by_wandb,
    ),
    Tool(
        "trackio",
        "trackio",
        open_trackio,
        'run.log({"loss": value}, step=step)',
        "run.log(values, step=step)",
        "trackio.finish()",
        stored_by_trackio,
    ),
    Tool(
        "tensorboardX",
        "tensorboardX",
        open_tensorboardx,
        'writer.add_scalar("loss", value, step)',
        "for name, number in values.items(): writer.add_scalar(name, number, step)",
        "writer.close()",
        stored_by_tensorboardx,
    ),
    Tool(
        "mlflow, SQLite",
        "mlflow",
        open_mlflow,
        'mlflow.log_metric("loss", value, step=step)',
        "mlflow.log_metrics(values, step=step)",
        "mlflow.end_run()",
        stored_by_mlflow,
    ),
    Tool(
        "mlflow, SQLite, asynchronous",
        "mlflow",
        open_mlflow,
        'mlflow.log_metric("loss", value, step=step, synchronous=False)',
        "mlflow.log_metrics(values, step=step, synchronous=False)",
        "mlflow.flush_async_logging(); mlflow.end_run()",
        stored_by_mlflow,
    ),
    Tool(
        "mldiagnostics, local exporter",
        "google_cloud_mldiagnostics",
        open_mldiagnostics,
        'metrics.record("loss", value, step=step)',
        "metrics.record_metrics([{'metric_name': n, 'value': v} for n, v in values.items()],"
        " step=step)",
        "recorder.stop()",
        stored_by_mldiagnostics,
    ),
)
CONTROL: Final = Tool(
    "control: list.append",
    "",
    lambda directory, home: {"kept": [], "time_ns": time.time_ns},
    "kept.append((time_ns(), step, value))",
    "kept.append((time_ns(), step, values))",
    "pass",
    lambda directory, home: [],
)
"""No tool: what a Python statement costs here that reads the clock and keeps three objects."""
OURS: Final = (RUNWATCH_LOG, RUNWATCH_RECORD)
ALL: Final = (*OURS, *PEERS)
NAMED: Final = {tool.name: tool for tool in (*ALL, CONTROL)}


def loop_over(statement: str, names: Names, before: str = "", after: str = "") -> Any:
    """Compile `for step in steps: value = float(step); before; statement; after` to a function."""
    source = [
        "def _loop(steps, values, clock, note):",
        " for step in steps:",
        "  value = float(step)",
        f"  {before or 'pass'}",
        f"  {statement}",
        f"  {after or 'pass'}",
    ]
    scope = dict(names)
    exec(compile("\n".join(source), statement, "exec"), scope)
    return scope["_loop"]
