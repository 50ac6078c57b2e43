"""Logs that the real packages wrote, recorded once: `tests/fixtures/imports/record.py`."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.imports.reading import FIXTURES, Bench, by_metric, recorded, truth

WANDB = next((FIXTURES / "wandb").rglob("*.wandb"))


def database(place: Path) -> Path:
    path = place / "mlflow.db"
    tables = sqlite3.connect(path)
    tables.executescript((FIXTURES / "mlflow_sqlite.sql").read_text())
    tables.close()
    return path


def milliseconds(text: str) -> float:
    return datetime.fromisoformat(text[:26] + "+00:00").timestamp() * 1000


def test_a_tensorboard_log(bench: Bench) -> None:
    report = bench.bring(FIXTURES / "tensorboard")
    told = recorded("tensorboard")
    assert {run["name"] for run in report} == set(told)
    rows = bench.rows()
    assert {name: by_metric(each) for name, each in rows.items()} == {
        name: truth(metrics) for name, metrics in told.items()
    }
    (fast,) = (run for run in report if run["name"] == "fast/train")
    assert fast["texts"] == 1 and fast["left_out"]["histograms"] == 1
    ours = [milliseconds(row["time"]) for row in rows["slow"] if row["metric"] == "loss"]
    assert ours == pytest.approx([time for _, time, _ in told["slow"]["loss"]], abs=0.001)

    runs = bench.runs()
    assert runs["slow"]["state"] == "completed" and not runs["slow"]["stalled"]
    id, hp = runs["slow"]["run"], runs["slow/hp"]["run"]
    processes, configs, goodput, events = bench.get(
        f"/runs/{id}/processes", f"/runs/{hp}/configs", f"/runs/{id}/goodput", f"/runs/{id}/events"
    )
    assert "does not say how the run ended" in processes["processes"][0]["reason"]
    assert configs["user"] == {"lr": 0.01, "optimizer": "adam"}
    assert goodput["goodput"] is None and goodput["remark"].startswith("imported")
    assert goodput["figures"]["ettr"] is None and not goodput["live"]
    texts = [event["body"] for event in events["events"] if event["kind"] == "log"]
    assert texts == [{"name": "note/text_summary", "value": "first **words**"}]


def test_a_wandb_run(bench: Bench) -> None:
    (report,) = bench.bring(FIXTURES / "wandb")
    assert report["name"] == "calm-lake" and report["group"] == "sweep"
    assert report["left_out"]["histogram"] == 5
    values = bench.values()["calm-lake"]
    assert {k: v for k, v in values.items() if not k.startswith("system/")} == truth(
        recorded("wandb")["calm-lake"]
    )
    assert any(metric.startswith("system/") for metric in values)
    run = bench.runs()["calm-lake"]
    assert run["state"] == "failed" and run["group"] == "sweep"
    configs, processes, events = bench.get(
        "/runs/calm-lake/configs", "/runs/calm-lake/processes", "/runs/calm-lake/events"
    )
    assert configs["user"]["lr"] == 0.1 and configs["user"]["late"] == 1
    assert configs["user"]["optimizer"] == {"name": "adam", "betas": [0.9, 0.999]}
    assert configs["user"]["wandb"]["project"] == "digits"
    assert processes["processes"][0]["exit_code"] == 3
    bodies = {event["kind"]: event["body"] for event in events["events"]}
    assert bodies["console"]["lines"] == ["said by the program"]
    words = [e["body"]["value"] for e in events["events"] if e["body"].get("name") == "word"]
    assert words == ["w0", "w10", "w20", "w30", "w40"]
    (summary,) = (e for e in events["events"] if e["body"].get("name") == "summary")
    assert summary["body"]["value"]["best"] == 0.5


# The file store is also made by the real package: tests/integration/test_import.py.
@pytest.mark.parametrize("store", ["mlflow_sqlite", pytest.param("mlflow", marks=pytest.mark.soak)])
def test_an_mlflow_store(bench: Bench, store: str) -> None:
    path = FIXTURES / store if store == "mlflow" else database(bench.place)
    report = bench.bring(path)
    told = recorded(store)
    assert {run["name"] for run in report} == {name.strip() for name in told}
    assert bench.values() == {name.strip(): truth(metrics) for name, metrics in told.items()}
    runs = bench.runs()
    first, child = runs["first: 'run'"], runs[next(n for n in runs if n.startswith("child"))]
    assert (first["state"], child["state"]) == ("completed", "failed")
    assert (first["group"], child["group"]) == ("digits", "first: 'run'")
    assert first["started_ns"] == 1_700_000_000_000_000_000
    assert first["ended_ns"] == 1_700_000_010_000_000_000
    configs, processes = bench.get(
        f"/runs/{first['run']}/configs", f"/runs/{child['run']}/processes"
    )
    assert configs["user"]["lr"] == "0.1" and configs["user"]["model/name"] == "gpt: x"
    assert configs["user"]["mlflow"]["tags"]["team"] == "a b"
    assert processes["processes"][0]["reason"] == "MLflow says FAILED"


# The two of soak are imported again in tests/integration/test_import.py, too.
@pytest.mark.parametrize(
    "kind",
    [
        "tensorboard",
        "mlflow_sqlite",
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("wandb", "mlflow")),
    ],
)
def test_a_second_import_adds_nothing(bench: Bench, kind: str) -> None:
    path = database(bench.place) if kind == "mlflow_sqlite" else bench.copy(kind)
    first = bench.bring(path)
    before = bench.rows()
    assert sum(map(len, before.values())) == sum(run["points"] for run in first) > 0
    moved = bench.place / "elsewhere" / "deeper"
    moved.parent.mkdir()
    shutil.move(path, moved)  # known by what it holds
    again = bench.bring(moved)
    assert {run["state"] for run in again} == {"nothing new"}
    assert sum(run["points"] for run in again) == 0
    assert {run["name"] for run in again} == set(before)
    assert bench.rows() == before
