"""`runwatch import` of logs that the real packages write here and now; by real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import pytest

from runwatch.testing import until
from tests.integration.processes import Cluster, end
from tests.unit.imports.reading import FIXTURES, Bench, truth
from tests.unit.imports.test_importing import losses, table

RECORD: Final = FIXTURES / "record.py"
SLOWLY: Final = """
import signal, sys
from runwatch.cli.__main__ import main
from runwatch.imports import growing, ledger, writing
growing.OFTEN_BYTES, writing.PART_POINTS = 2_000, 100
write, left = ledger.Shelf.write, int(sys.argv.pop(1))
def stopping(*arguments):
    global left
    left -= 1
    write(*arguments)
    if not left:
        print("here", flush=True)
        signal.pause()
ledger.Shelf.write = stopping
sys.exit(main(sys.argv[1:]))
"""
"""The command.  It commits often and waits, in the middle, to be killed."""


@pytest.fixture
def bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    for name in ("RUNWATCH_HEAD", "RUNWATCH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "nowhere"))
    return Bench(tmp_path, capsys)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    try:
        yield made
    finally:
        made.close()


def record(kind: str, folder: Path) -> dict[str, Any]:
    """A real log, and what the package's own reader says of it."""
    done = subprocess.run(
        [sys.executable, str(RECORD), kind, str(folder)],
        capture_output=True, text=True, timeout=100, cwd=folder.parent,
        env={k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return told


@pytest.mark.parametrize(
    "kind",
    [
        "tensorboardX",
        "wandb",
        pytest.param("mlflow", marks=pytest.mark.soak),
        pytest.param("tensorboard", marks=pytest.mark.soak),  # by torch, which takes long to load
        pytest.param("mlflow-sqlite", marks=pytest.mark.soak),
    ],
)
def test_a_real_log_gives_the_same_numbers_back(bench: Bench, kind: str) -> None:
    if kind == "mlflow-sqlite":
        pytest.importorskip("sqlalchemy", reason="MLflow needs it for its database")
        pytest.importorskip("alembic")
    folder = bench.place / "log"
    told = record(kind, folder)
    report = bench.bring(folder)
    values = bench.values()
    measured = {
        run: {m: points for m, points in metrics.items() if not m.startswith("system/")}
        for run, metrics in values.items()
    }
    assert measured == {name.strip(): truth(metrics) for name, metrics in told.items()}
    assert sum(run["points"] for run in report) == sum(
        len(points) for metrics in values.values() for points in metrics.values()
    )
    again = bench.bring(folder)
    assert {run["state"] for run in again} == {"nothing new"}
    assert repr(bench.values()) == repr(values)
    states = {run["state"] for run in bench.runs().values()}
    assert states <= {"completed", "failed"}


def test_a_killed_import_goes_on(bench: Bench) -> None:
    """By SIGKILL, when some of it is imported and more is written; then it is left alone."""
    path, rows = table(bench.place / "long.csv", 1_500), 0
    for parts in (1, 3):
        words = [str(parts), "import", str(path), "--dir", str(bench.root)]
        with subprocess.Popen([sys.executable, "-c", SLOWLY, *words], stdout=PIPE) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"here\n"
            finally:
                end(process, signal.SIGKILL)
        (ledger,) = bench.root.glob("imports/*/ledger.json")
        before, rows = rows, json.loads(ledger.read_text())["points"]
        assert before < rows < 1_500
        assert list(bench.root.glob("imports/*/part-*"))
    (report,) = bench.bring(path)
    assert report["state"] == "grown" and report["points"] == 1_500 - rows
    assert bench.values() == {"long": losses(1_500)}


def test_into_a_head(bench: Bench, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its address, and into the directory that it serves; while it runs."""
    path = table(bench.place / "grows.csv", 5)
    bench.root = cluster.node_root
    nobody = f"http://127.0.0.1:{cluster.http_port}"
    assert bench.command("import", path, "--head", nobody) == 1
    assert "no answer" in bench.err
    at = cluster.start_head()
    assert bench.command("import", path, "--head", at.http) == 2
    assert "a token of role admin" in bench.err
    monkeypatch.setenv("RUNWATCH_TOKEN", at.token)
    for rows in (5, 5, 40):
        (report,) = bench.bring(table(path, rows), "--head", at.http)
    assert report["points"] == 35 and report["state"] == "grown"
    assert not (cluster.node_root / "journals").exists()
    bench.root = cluster.head_root
    other = bench.place / "here.csv"
    for rows in (5, 40):
        bench.bring(table(other, rows))

    def steps(run: str) -> int:
        assert bench.command("export", run, "--format", "json") == 0
        return len(json.loads(bench.out))

    bench.command("runs")
    until(lambda: "here" in bench.out or bench.command("runs"), what="the head to find it")
    until(lambda: steps("here") == 40, what="the head to read all of it")
    assert steps("grows") == 40
    assert bench.command("import", table(bench.place / "two" / "here.csv", 3, first=9)) == 2
    assert "there is a run 'here'" in bench.err
    cluster.stop_head()
    assert bench.values() == {"grows": losses(40), "here": losses(40)}
    for run in ("grows", "here"):
        (events,) = bench.get(f"/runs/{run}/events")
        assert not [event for event in events["events"] if "gap" in event["kind"]]
