"""The command: what it takes for a log, what it refuses, and that each value is imported once."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli import importing
from runwatch.imports import writing
from runwatch.imports.finding import find
from runwatch.imports.ledger import Ledger, Shelf
from runwatch.imports.planning import Wish, plan
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import new_journal_id
from runwatch.journal.writer import JournalWriter
from runwatch.record import Batch, Event, Origin, RunId, RunScope
from runwatch.record.life import RunEnd, RunStart
from tests.unit.imports.reading import FIXTURES, Bench, by_metric

TENSORBOARD = FIXTURES / "tensorboard"
GOODPUT = "_timeline.jsonl"


def table(path: Path, rows: int, *, first: int = 0) -> Path:
    lines = ["step,time,loss\n"]
    lines += [f"{n},{1_700_000_000 + n},{1 / (n + 1)!r}\n" for n in range(first, first + rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return path


def losses(rows: int) -> dict[str, list[tuple[int, str]]]:
    return {"loss": [(n, repr(1 / (n + 1))) for n in range(rows)]}


def recorded_run(root: Path, name: str) -> None:
    """As a training program leaves it."""
    journal = new_journal_id("node", 7, 10**18, "abc")
    writer = JournalWriter(root, Origin(journal, "node", 7, 10**18))
    scope = writer.scope(RunScope(0, RunId(name), name))
    writer.tell(RunStart(run=name, name=name, rank=0), scope=scope)
    writer.point(writer.series("loss", scope=scope), 1.0, 0)
    writer.tell(RunEnd("completed", explicit=True), scope=scope)
    writer.close()


# ── tables ─────────────────────────────────────────────────────────────────────────────────────


def test_a_table_grows(bench: Bench) -> None:
    path = bench.place / "grows.csv"
    for rows in (3, 3, 10, 11):
        table(path, rows)
        bench.bring(path)
    assert bench.values() == {"grows": losses(11)}
    (run,) = bench.runs().values()
    (processes, events) = bench.get(f"/runs/{run['run']}/processes", f"/runs/{run['run']}/events")
    assert run["attempts"] == len(processes["processes"]) == 1  # three imports are no restarts
    assert run["state"] == "completed" and run["last_ns"] == 1_700_000_010 * 10**9
    assert not [event for event in events["events"] if "gap" in event["kind"]]


def test_a_table_in_every_dress(bench: Bench) -> None:
    dressed = {
        "semicolons": "step;loss;phase\n0;0.5;train\n1;;train\n2;inf;eval\n",
        "tabs": "Step\tloss\r\n0\t0.5\r\n2\tInfinity\r\n",
        "mark": "\ufeffstep,loss\n0,0.5\n\n2,inf\n",
        "quotes": '"step","loss"\n"0","0.5"\n"2","inf"\n',
        "float-steps": "global_step,loss\n0.0,0.5\n2.0,inf\n",
    }
    files = [bench.place / f"{name}.csv" for name in dressed]
    for file, text in zip(files, dressed.values(), strict=True):
        file.write_bytes(text.encode())
    report = {run["name"]: run for run in bench.bring(*files)}
    assert report["semicolons"]["left_out"] == {"column 'phase', which holds texts": 1}
    assert "no column with a time" in report["tabs"]["notes"][0]
    assert bench.values() == {name: {"loss": [(0, "0.5"), (2, "inf")]} for name in dressed}


def test_the_last_line_of_a_table(bench: Bench) -> None:
    """It may have no end because it is still being written, or because the file ends so."""
    path, head = bench.place / "live.csv", "step,loss\n0,0.5\n"
    path.write_text(head + "1,0.2")
    assert "last line without an end (for the next import)" in bench.bring(path)[0]["left_out"]
    path.write_text(head + "1,0.25")
    os.utime(path, (1e9, 1e9))
    assert bench.bring(path)[0]["points"] == 1
    assert bench.bring(path)[0]["points"] == 0
    path.write_text(head + "1,0.25\n2,1\n")
    bench.bring(path)
    assert sorted(bench.values()["live"]["loss"]) == [(0, "0.5"), (1, "0.25"), (2, "1.0")]
    path.write_text(head + "1,0.25\n2,1\n3,0.1")
    os.utime(path, (1e9, 1e9))
    bench.bring(path)
    path.write_text(head + "1,0.25\n2,1\n3,0.125\n")
    assert bench.command("import", path) == 2
    assert "line 5: it was imported before it was complete" in bench.err


@pytest.mark.parametrize("form", ["csv", pytest.param("json", marks=pytest.mark.soak)])
def test_what_we_export_comes_back(
    bench: Bench, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks, attempts, devices, steps and nanoseconds, too; in however many parts."""
    monkeypatch.setattr(writing, "PART_POINTS", 1)
    monkeypatch.setattr("runwatch.imports.growing.OFTEN_BYTES", 1)
    rows = [
        f"r,{attempt},node,{rank},{device},{metric},{step},{time}.123456789Z,{value},{rank}"
        for attempt, rank, device, metric, step, time, value in (
            (1, 0, "", "loss", 0, "2026-01-02T03:04:05", "0.1"),
            (1, 1, "", "loss", 0, "2026-01-02T03:04:06", "NaN"),
            (1, 1, "gpu0", "power", "", "2026-01-02T03:04:06", "-Infinity"),
            (2, 0, "", "loss", 7, "2026-01-02T04:04:05", "1e-300"),
            (2, 1, "", "loss", 7, "2026-01-02T04:04:05", "2.5"),
        )
    ]
    path = bench.place / "first.csv"
    head = "run,attempt,host,process,device,metric,step,time,value,rank"
    path.write_text("\r\n".join([head, *rows, ""]))
    bench.bring(path)
    (first,) = bench.rows().values()
    assert len(first) == 5
    (known,) = bench.get("/runs/r/processes")
    assert sorted((p["attempt"], p["rank"], p["state"]) for p in known["processes"]) == [
        (attempt, rank, "completed") for attempt in (1, 2) for rank in (0, 1)
    ]
    again = bench.place / f"again.{form}"
    assert bench.command("export", "r", "--format", form, "-o", again) == 0
    bench.root = bench.place / "second"
    bench.bring(again)
    (second,) = bench.rows().values()
    assert second == first
    assert bench.bring(again)[0]["state"] == "nothing new"


# ── each value once ────────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    pass


LASTING = ((Shelf, "write"), (Shelf, "finish"), (writing._Journal, "close"))
"""What leaves something on the disk."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "times", [2, *(pytest.param(times, marks=pytest.mark.soak) for times in (1, 3, 4))]
)
@pytest.mark.parametrize(("owner", "name"), LASTING)
def test_an_import_that_is_killed_anywhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool, times: int
) -> None:
    path = table(bench.place / "long.csv", 40)
    monkeypatch.setattr(writing, "PART_POINTS", 10)
    monkeypatch.setattr("runwatch.imports.growing.OFTEN_BYTES", 100)
    original, calls = getattr(owner, name), []

    def call(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == times and not after:
            raise Killed
        result = original(*arguments)
        if len(calls) == times:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, call)
        with pytest.raises(Killed):
            brought(bench, path)
    (each,) = plan(find(path).sources, Wish(bench.root))
    each.shelf.finish(each.shelf.read(), importing.Target(bench.root).deliver())
    assert len(delivered(bench.root)) == each.ledger.points  # what is counted, and nothing else
    ends = [e for e in told(bench.root) if e.kind == "run_end"]
    assert bool(ends) == bool(each.ledger.points)  # as it stands, it is not lost
    brought(bench, path)
    assert not list(bench.root.glob("imports/*/part-*"))
    assert delivered(bench.root) == [(n, 1 / (n + 1)) for n in range(40)]


def told(root: Path) -> list[Event]:
    journals = sorted(root.glob("journals/*"))
    return [event for journal in journals for batch in batches(journal) for event in batch.events]


def delivered(root: Path) -> list[tuple[int, float]]:
    return [
        (step, value)
        for journal in sorted(root.glob("journals/*"))
        for batch in batches(journal)
        for step, value in zip(batch.points.step, batch.points.value, strict=True)
    ]


def brought(bench: Bench, path: Path) -> None:
    """As the command does, without asking which runs there are."""
    (each,) = plan(find(path).sources, Wish(bench.root))
    importing.bring(each, importing.Target(bench.root), lambda _: None)


def batches(journal: Path) -> Iterator[Batch]:
    reader = JournalReader(journal)
    try:
        while (batch := reader.read(final=True)) is not None:
            assert not batch.skipped_records
            yield batch
    finally:
        reader.close()


def test_two_imports_at_once(bench: Bench) -> None:
    path = table(bench.place / "a.csv", 3)
    bench.bring(path)
    (folder,) = (bench.root / "imports").iterdir()
    with Shelf(bench.root, folder.name).locked():
        assert bench.command("import", path) == 2
    assert "another process is importing the same log" in bench.err


# ── names ──────────────────────────────────────────────────────────────────────────────────────


def test_a_recorded_run_is_not_mixed_with_an_imported_one(bench: Bench) -> None:
    recorded_run(bench.root, "a")
    path = table(bench.place / "a.csv", 3)
    assert bench.command("import", path) == 2
    assert "there is a run 'a'" in bench.err and "--run NAME" in bench.err
    assert not (bench.root / "imports").exists()
    assert len(bench.values()["a"]["loss"]) == 1
    bench.bring(path, "--run", "b", "--group", "old")
    assert bench.values()["b"] == losses(3)
    assert bench.runs()["b"]["group"] == "old"
    assert bench.bring(path)[0]["name"] == "b"  # it is known under that name now


def test_another_log_of_the_same_name(bench: Bench) -> None:
    bench.bring(table(bench.place / "one" / "a.csv", 3))
    other = table(bench.place / "two" / "a.csv", 3, first=5)
    assert bench.command("import", other) == 2
    assert "was not imported from" in bench.err
    bench.bring(other, "--run", "other")
    assert {name: len(v["loss"]) for name, v in bench.values().items()} == {"a": 3, "other": 3}


@pytest.mark.soak
def test_several_runs_below_one_name(bench: Bench) -> None:
    names = {run["name"] for run in bench.bring(TENSORBOARD, "--run", "old")}
    assert names == {"old/fast/train", "old/fast/train/hp", "old/slow", "old/slow/hp"}


def test_logs_that_are_called_the_same(bench: Bench) -> None:
    """Two runs of MLflow may have one name: neither is lost."""
    for id in ("a" * 32, "b" * 32):
        folder = bench.place / "mlruns" / "1" / id
        (folder / "metrics").mkdir(parents=True)
        (folder / "meta.yaml").write_text(
            f"run_id: {id}\nrun_name: twin\nstart_time: 1700000000000\n"
        )
        (folder / "metrics" / "loss").write_text(f"1700000000000 {len(id)} 0\n")
    report = bench.bring(bench.place / "mlruns")
    names = {run["name"] for run in report}
    assert len(names) == 2 and all(name.startswith("twin-") for name in names)
    assert {run["state"] for run in bench.bring(bench.place / "mlruns")} == {"nothing new"}


def test_a_run_that_was_deleted(bench: Bench) -> None:
    """Its records would be dropped: better to say so."""
    path = table(bench.place / "a.csv", 3)
    bench.bring(path)
    assert bench.command("delete", "a", "--yes") == 0
    for words in ((), ("--again",)):
        assert bench.command("import", path, *words) == 2
        assert "run 'a' was deleted" in bench.err and "`runwatch restore`" in bench.err
    bench.bring(path, "--run", "b")
    assert bench.values() == {"b": losses(3)}


def test_a_store_that_was_lost(bench: Bench) -> None:
    path = table(bench.place / "a.csv", 3)
    bench.bring(path)
    for folder in ("store", "journals"):
        shutil.rmtree(bench.root / folder, ignore_errors=True)
    assert bench.bring(path)[0]["state"] == "nothing new"
    assert "is not there now; --again imports it" in bench.err
    bench.bring(path, "--again")
    assert bench.values() == {"a": losses(3)}
    assert bench.bring(path)[0]["state"] == "nothing new"


# ── MLflow goes on ─────────────────────────────────────────────────────────────────────────────


def test_a_run_of_mlflow_that_goes_on(bench: Bench) -> None:
    folder = bench.copy("mlflow")
    loss = next(p for p in folder.rglob("loss") if (p.parent / "odd").exists())
    meta = loss.parents[1] / "meta.yaml"
    finished = meta.read_text()
    meta.write_text(finished.replace("status: 3", "status: 1"))

    def stands() -> tuple[str, int]:
        bench.bring(folder)
        run = bench.runs()["first: 'run'"]
        return run["state"], run["ended_ns"] // 10**9

    assert stands() == ("completed", 1_700_000_004)  # as far as is known
    with loss.open("a") as file:
        file.write("1700000020000 0.125 7\n")
    assert stands() == ("completed", 1_700_000_020)
    meta.write_text(finished.replace("end_time: 1700000010000", "end_time: 1700000021000"))
    assert stands() == ("completed", 1_700_000_021)
    with loss.open("a") as file:
        file.write("1700000030000 0.0625 8\n")
    meta.write_text(
        finished.replace("end_time: 1700000010000", "end_time: 1700000031000").replace(
            "status: 3", "status: 4"
        )
    )
    assert stands() == ("failed", 1_700_000_031)
    assert bench.values()["first: 'run'"]["loss"][-2:] == [(7, "0.125"), (8, "0.0625")]
    assert bench.runs()["first: 'run'"]["attempts"] == 1


# ── logs of the originals ──────────────────────────────────────────────────────────────────────


def entry(run: str, metric: str, payload: dict[str, Any], number: int) -> dict[str, Any]:
    labels = {"project_id": "p", "location": "l", "namespace": metric, "node_id": run}
    return {
        "insertId": f"i{number}",
        "logName": "projects/p/logs/ml_diagnostics_metric",
        "timestamp": f"2026-01-02T03:04:{number:02}.5Z",
        "resource": {"type": "generic_node", "labels": labels},
        "jsonPayload": payload,
    }


def test_metrics_that_mldiagnostics_logged(bench: Bench) -> None:
    entries = [
        entry(
            "job-1", "loss", {"values": [0.5 / (n + 1)], "step_index": n, "process_index": n % 2}, n
        )
        for n in range(4)
    ]
    entries.append(entry("job-1", "mlrun_configs", {"userConfigs": {"lr": "0.1"}}, 9))
    entries.append(entry("job-2", "util", {"values": [1, 2], "accelerator_labels": ["a", "b"]}, 10))
    entries.append(entry("job-2", "sdk_logs", {"message": "hello"}, 11))
    path = bench.place / "metrics.json"
    path.write_text(json.dumps(entries[::-1]))  # the newest first, as gcloud lists them
    report = {run["name"]: run for run in bench.bring(path)}
    assert (report["job-1"]["points"], report["job-2"]["points"]) == (4, 2)
    rows = bench.rows()
    assert sorted((r["rank"], r["step"], r["value"]) for r in rows["job-1"]) == [
        (0, 0, 0.5), (0, 2, 0.5 / 3), (1, 1, 0.25), (1, 3, 0.125),
    ]  # fmt: skip
    assert {(r["device"], r["value"]) for r in rows["job-2"]} == {("a", 1.0), ("b", 2.0)}
    entries.append(entry("job-1", "loss", {"values": [9.0], "step_index": 9}, 20))
    path.write_text("\n".join(map(json.dumps, entries[2:] + entries[-1:])))  # another stretch
    report = {run["name"]: run for run in bench.bring(path)}
    assert (report["job-1"]["points"], report["job-2"]["points"]) == (1, 0)
    assert bench.get("/runs/job-1/configs")[0]["user"] == {"lr": "0.1"}


def goodput_log(path: Path, job: str = "job") -> Path:
    begin = 1_700_000_000.0
    entries: list[dict[str, Any]] = [{"job_name": job, "job_start_time": begin}]
    entries += [
        {"job_name": job, "step_count": n, "step_start_time": begin + 10 * n} for n in range(20)
    ]
    entries.append({"job_name": job, "job_end_time": begin + 200})
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return path


def test_a_goodput_log_becomes_a_run_with_goodput(bench: Bench) -> None:
    goodput_log(bench.place / f"job{GOODPUT}")
    for new in (22, 0):
        assert bench.command("import", bench.place, "--json") == 0
        (other,) = json.loads(bench.out)["others"]
        assert other["kind"] == "goodput" and other["jobs"][0]["new"] == new
    assert bench.get("/runs/job/goodput")[0]["goodput"] > 0.5


def test_goodput_entries_of_cloud_logging(bench: Bench) -> None:
    lines = goodput_log(bench.place / "plain").read_text().splitlines()
    exported = [
        {
            "jsonPayload": json.loads(line),
            "insertId": str(n),
            "logName": "projects/p/logs/goodput_job",
            "timestamp": f"2026-01-02T03:04:{n:02}Z",
        }
        for n, line in enumerate(lines)
    ]
    path = bench.place / "entries.json"
    exported.append(entry("job-1", "loss", {"values": [0.5], "step_index": 0}, 1))
    path.write_text(json.dumps([{"textPayload": "other", "logName": "x"}, *exported[::-1]]))
    assert bench.command("import", path) == 0
    assert "job: 22 entries of a goodput log, 22 new" in bench.out
    assert "1 point of 1 run imported" in bench.out  # of another log in the same export


def test_buffers_of_gswarm(bench: Bench) -> None:
    buffers = Path(__file__).parents[2] / "fixtures" / "gswarm" / "on-the-path"
    bench.root.mkdir()
    for _ in range(2):
        assert bench.command("import", buffers, "--json") == 0
    (other, *_) = json.loads(bench.out)["others"]
    assert other["kind"] == "gswarm" and other["imported"][0]["samples"] == 12
    assert len(bench.get("/sessions")[0]["sessions"]) == 1


@pytest.mark.parametrize(
    "form", ["frames.jsonl", pytest.param("session.json", marks=pytest.mark.soak)]
)
def test_sessions_of_gswarm(bench: Bench, form: str) -> None:
    """As heads of 0.2.1 write them: numbers are text, shares 0 to 1."""
    frames = [
        {
            "frame_id": n + 1,
            "time": f"2026-01-02T03:04:{n:02}.250000",
            "gpu_id": ["a:0:NVIDIA H100", "a:1:NVIDIA H100", "b:0:NVIDIA H100"],
            "gpu_util": ["0.25", f"0.{n}5", "0.75"],
            "gpu_memory": ["0.50", "0.50", "0.50"],
        }
        for n in range(4)
    ]
    path = bench.place / form
    if form == "frames.jsonl":
        path.write_text("".join(json.dumps(frame) + "\n" for frame in frames) + '{"frame_id": 5')
    else:
        path.write_text(json.dumps({"frames": frames, "summary_by_device": {}}, indent=2))
    bench.root.mkdir()
    for _ in range(2):
        assert bench.command("import", path, "--json") == 0
    (other,) = json.loads(bench.out)["others"]
    assert [(each["host"], each["samples"], each["devices"]) for each in other["imported"]] == [
        ("a", 4, 2), ("b", 4, 1),
    ]  # fmt: skip
    sessions = bench.get("/sessions")[0]["sessions"]
    assert len(sessions) == 2
    (document,) = bench.get(f"/sessions/{sessions[0]['id']}/export")
    shares = [dict(zip(f["gpu_id"], f["gpu_util"], strict=True)) for f in document["frames"]]
    assert [frame["a:1:NVIDIA H100"] for frame in shares] == pytest.approx([5, 15, 25, 35])
    assert {frame["b:0:NVIDIA H100"] for frame in shares} == {75.0}
    ours = bench.place / "ours.json"
    ours.write_text(json.dumps(document))
    assert bench.command("import", ours) == 2  # its numbers have other units


# ── what is no log ─────────────────────────────────────────────────────────────────────────────


def test_a_folder_of_other_things_is_refused(bench: Bench) -> None:
    folder = bench.place / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("step by step\n")
    (folder / "data.csv").write_text("step,loss\n0,1\n")  # may be anything: it must be named
    (folder / "tfevents-notes.txt").write_text("see TensorBoard")
    (folder / "events.out.tfevents.1.x").write_bytes(b"")
    (folder / "run-1.wandb").write_text("notes")
    (folder / "meta.yaml").write_text("name: no run\n")
    other = sqlite3.connect(folder / "mlflow.db")
    other.execute("CREATE TABLE runs (id)")
    other.close()
    (folder / "x_timeline.jsonl").write_text('{"event": 1}\n')
    assert bench.command("import", folder) == 2
    assert "holds no TensorBoard log, wandb run or MLflow store" in bench.err
    assert not bench.root.exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", b"hello\nworld\n", "is nothing that can be imported"),
        ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "is nothing that can be imported"),
        ("empty.csv", b"", "is nothing that can be imported"),
        ("names.csv", b"name,age\nx,3\n", "is nothing that can be imported"),
        ("list.json", b"[1, 2]", "is nothing that can be imported"),
        ("bad.csv", b"step,loss\n0,0.5\n1,abc\n", "line 3, column 'loss': 'abc' is no number"),
        ("steps.csv", b"step,loss\n0.5,1\n", "line 2, column 'step': '0.5' is no whole number"),
        ("time.csv", b"time,loss\nsoon,1\n", "line 2, column 'time': 'soon' is no time"),
        ("short.csv", b"step,a,b\n0,1,2\n1,2\n", "line 3: 2 columns, where the first line names 3"),
        ("open.csv", b'step,a\n0,"' + b"xxxxxxx\n" * 20_000, "is a quote not closed"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(
    bench: Bench, name: str, content: bytes, words: str
) -> None:
    path = bench.place / name
    path.write_bytes(content)
    assert bench.command("import", path) == 2
    assert str(path) in bench.err and words in bench.err
    assert "Traceback" not in bench.err


def test_one_bad_log_does_not_stop_the_others(bench: Bench) -> None:
    good, bad = table(bench.place / "good.csv", 3), bench.place / "bad.csv"
    bad.write_text("step,loss\n0,1\n1,y\n")
    assert bench.command("import", bad, good) == 1
    assert "line 3, column 'loss'" in bench.err
    assert bench.values()["good"] == losses(3)


def test_a_path_that_is_not_there(bench: Bench) -> None:
    assert bench.command("import", bench.place / "nowhere") == 1
    assert "there is no" in bench.err


def test_another_form_than_the_wanted_one(bench: Bench) -> None:
    assert bench.command("import", TENSORBOARD, "--as", "wandb") == 2
    assert "holds nothing of wandb" in bench.err


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    report = bench.bring(TENSORBOARD, "--dry-run")
    assert {run["state"] for run in report} == {"would be new"}
    assert not bench.root.exists()
    imported = bench.bring(TENSORBOARD)
    assert [run["points"] for run in imported] == [run["points"] for run in report]
    report = bench.bring(TENSORBOARD, "--dry-run")
    assert {run["state"] for run in report} == {"nothing new"}


def test_what_is_said(bench: Bench) -> None:
    assert bench.command("import", TENSORBOARD) == 0
    assert "fast/train" in bench.out and "left out: " in bench.out and "histograms" in bench.out
    assert f"18 points of 4 runs imported into {bench.root}" in bench.out
    assert bench.command("runs") == 0
    assert "lost" not in bench.out and "stalled" not in bench.out


def test_a_log_in_a_store_that_is_gone(bench: Bench) -> None:
    """Marks outlive the journals: these are removed once they are stored."""
    path = table(bench.place / "a.csv", 3)
    bench.bring(path)
    assert bench.values() == {"a": losses(3)}
    shutil.rmtree(bench.root / "journals")
    table(path, 6)
    bench.bring(path)
    assert bench.values() == {"a": losses(6)}
    (events,) = bench.get("/runs/a/events")
    assert not [event for event in events["events"] if "gap" in event["kind"]]


def test_curves_do_not_spoil_the_goodput_of_a_group(bench: Bench) -> None:
    bench.bring(table(bench.place / "a.csv", 50), "--group", "g")
    goodput_log(bench.place / f"job{GOODPUT}")
    assert bench.command("import", bench.place / f"job{GOODPUT}") == 0
    (answer,) = bench.get("/goodput")
    assert [run["name"] for run in answer["runs"]] == ["job"] and answer["total"] == 1


def test_odd_numbers(bench: Bench) -> None:
    path = bench.place / "odd.csv"
    path.write_text("step,x\n0,nan\n1,-inf\n2,1e-310\n3,-0.0\n4,1e308\n")
    bench.bring(path)
    values = [float(value) for _, value in bench.values()["odd"]["x"]]
    assert math.isnan(values[0]) and values[1:] == [-math.inf, 1e-310, -0.0, 1e308]
    assert by_metric([]) == {}


def test_a_ledger_of_a_later_runwatch(bench: Bench) -> None:
    path = table(bench.place / "a.csv", 3)
    bench.bring(path)
    (ledger,) = (bench.root / "imports").glob("*/ledger.json")
    said = json.loads(ledger.read_text())
    assert Ledger(**{k: v for k, v in said.items() if k not in ("version", "books")}).points == 3
    ledger.write_text(json.dumps(said | {"version": 99}))
    assert bench.command("import", path) == 2
    assert "was written by a later Runwatch" in bench.err
