"""The commands as processes, over a directory that a real program recorded."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.address import ADDRESS_FILE, Listening, read_address
from runwatch.clock import system_clock
from runwatch.journal.liveness import this_host
from runwatch.store.duck.lock import DirectoryLock
from tests.integration.processes import Cluster, end

PROGRAM = """
import runwatch
with runwatch.init("line", group="tests", config={"lr": 0.1}) as run:
    for step, x in run.steps(range(50)):
        run.log(loss=1 / (step + 1), bad=float("nan"), parts=[1.0, 3.0])
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    run(root, sys.executable, "-c", PROGRAM)
    return root


def run(root: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    done = subprocess.run(
        command,
        env=inherited | {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not check or done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def runwatch(root: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(root, sys.executable, "-m", "runwatch.cli", *words, check=check)


def test_runs(recorded: Path) -> None:
    said = runwatch(recorded, "runs").stdout
    assert "line" in said
    assert "completed" in said
    answer = json.loads(runwatch(recorded, "runs", "--json").stdout)
    [found] = answer["runs"]
    assert (found["name"], found["group"], found["last_step"]) == ("line", "tests", 49)
    assert (
        json.loads(runwatch(recorded, "runs", "--state", "failed", "--json").stdout)["runs"] == []
    )


def test_show(recorded: Path) -> None:
    said = runwatch(recorded, "show", "line", "--metric", "loss").stdout
    assert "loss by step" in said
    assert "completed" in said
    answer = json.loads(runwatch(recorded, "show", "line", "--json", "-m", "loss").stdout)
    [curve] = answer["curves"]
    assert (curve["first"][0], sum(curve["count"])) == (1.0, 50)


DIVERGING = """
import math, runwatch
for name, bad in (("diverged", range(15, 30)), ("recovered", range(15, 17))):
    with runwatch.init(name) as run:
        for step in range(30):
            with run.step(step):
                loss = math.nan if step in bad else 1 / (step + 1)
                run.log(loss=loss, grad_norm=math.inf, val_loss=math.nan)
"""


def test_a_loss_that_is_nan_is_told(tmp_path: Path) -> None:
    run(tmp_path, sys.executable, "-c", DIVERGING)
    said = runwatch(tmp_path, "runs").stdout
    assert "⚠ completed" in said and "✔ completed" in said
    assert [line for line in said.splitlines() if "NaN since" in line] == [
        "diverged: loss is NaN since step 15"
    ]
    assert "loss is NaN since step 15" in runwatch(tmp_path, "show", "diverged", "--once").stdout
    assert "NaN" not in runwatch(tmp_path, "show", "recovered", "--once").stdout


def test_export_in_three_formats(recorded: Path, tmp_path: Path) -> None:
    said = runwatch(recorded, "export", "line", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(said)))
    losses = [row for row in rows if row["metric"] == "loss"]
    assert len(losses) == 50
    assert losses[9] | {"time": "", "host": ""} == {
        "run": "line", "attempt": "1", "host": "", "process": "0", "device": "",
        "metric": "loss", "step": "9", "time": "", "value": "0.1", "rank": "0",
    }  # fmt: skip
    assert {r["value"] for r in rows if r["metric"] == "bad"} == {"NaN"}
    parts = {(r["device"], r["value"]) for r in rows if r["metric"] == "parts"}
    assert {(d, float(v)) for d, v in parts} == {("", 2.0), ("0", 1.0), ("1", 3.0)}

    as_json = json.loads(runwatch(recorded, "export", "line", "--format", "json").stdout)
    assert len(as_json) == len(rows)

    target = tmp_path / "line.parquet"
    words = runwatch(recorded, "export", "line", "--format", "parquet", "-o", str(target)).stdout
    assert words == f"Wrote {target}\n"
    import duckdb

    with duckdb.connect() as engine:
        [(count,)] = engine.sql(f"SELECT count(*) FROM '{target}'").fetchall()
    assert count == len(rows)


def test_errors_name_the_value_and_the_way_out(recorded: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    for words, code, part in [
        (("show", "nope"), 1, "'nope'"),
        (("show", "line", "-m", "nope"), 1, "it has bad, data_wait_seconds, loss"),
        (("export", "line", "-o", str(taken)), 2, "--force"),
        (("export", "line", "-o", "/nowhere/x.csv"), 2, "no such directory: /nowhere"),
        (("runs", "--dir", "/nowhere"), 1, "/nowhere"),
        (("runs", "--head", "http://127.0.0.1:9"), 1, "http://127.0.0.1:9"),
        (("runs", "--head", "ftp://x"), 2, "ftp://x"),
        (("ui", "/nowhere"), 1, "no such directory: /nowhere"),
        (("nonsense",), 2, "nonsense"),
        ((), 2, "COMMAND"),
    ]:
        done = runwatch(recorded, *words, check=False)
        assert (done.returncode, part in done.stderr) == (code, True), (words, done)
    assert taken.read_text() == "mine"


def test_a_reader_that_leaves_ends_the_command(recorded: Path) -> None:
    command = f"{sys.executable} -m runwatch.cli export line --format json | head -n 1"
    done = run(recorded, "bash", "-c", command)
    assert done.stdout.strip() == "["
    assert done.stderr == ""


@pytest.mark.parametrize(
    "command", ["demo", "ui", "head", "agent", "runs", "show", "goodput", "export", "config"]
)
def test_help_has_an_example(recorded: Path, command: str) -> None:
    said = runwatch(recorded, command, "--help").stdout
    assert f"  runwatch {command}" in said
    assert "example:" in said


def test_config_says_where_a_value_came_from(recorded: Path) -> None:
    (recorded / "config.toml").write_text("[head]\nhttp_port = 5\n")
    try:
        answer = json.loads(runwatch(recorded, "config", "--json").stdout)
    finally:
        (recorded / "config.toml").unlink()
    head = {row["name"]: row for row in answer["head"]}
    assert (head["http_port"]["value"], head["http_port"]["from"].split()[0]) == (5, "file")
    assert head["dir"]["from"] == "environment RUNWATCH_DIR"
    assert head["bind"]["from"] == "default"


def test_two_commands_at_once_on_one_directory(recorded: Path) -> None:
    from runwatch.head.main import LocalHead

    following = LocalHead(recorded)  # as `runwatch show` does while it follows a run
    try:
        done = runwatch(recorded, "runs", "--json")
        assert json.loads(done.stdout)["total"] == 1
        assert "in use" in done.stderr
    finally:
        following.close()


def test_a_directory_that_a_head_serves_is_asked_through_that_head(
    recorded: Path, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start_head()
        cluster.start_agent()
        cluster.start_trainer(hertz=0, count=100)
        cluster.wait_until_stored()
        answer = json.loads(runwatch(cluster.head_root, "runs", "--json").stdout)
        assert [found["name"] for found in answer["runs"]] == ["trial-0"]
        by_address = runwatch(
            cluster.node_root,
            "runs",
            "--json",
            "--head",
            f"http://127.0.0.1:{cluster.http_port}",
        )
        assert json.loads(by_address.stdout)["total"] == 1
    finally:
        cluster.close()


def test_damage_and_what_was_not_recorded_are_shown_with_the_run(tmp_path: Path) -> None:
    program = """
import runwatch
run = runwatch.init("hurt")
for step in range(2000):
    run.log(loss=float(step), step=step)
run.log(odd=object())
run.finish()
"""
    run(tmp_path, sys.executable, "-c", program)
    [segment] = tmp_path.glob("journals/*/00000000.seg")
    content = bytearray(segment.read_bytes())
    # Among the points: what else is recorded of a run lies somewhere between them.
    at = content.index(struct.pack("<d", 1000.0))
    content[at : at + 100] = b"?" * 100
    segment.write_bytes(content)
    said = runwatch(tmp_path, "show", "hurt").stdout
    assert "rank 0: part of its journal could not be read (damaged)" in said
    assert "not recorded: value builtins.object × 1" in said
    rows = runwatch(tmp_path, "export", "hurt").stdout.splitlines()
    assert 1990 < len(rows) - 1 < 2000


def test_the_note_of_a_head_that_was_killed_is_told_and_the_journals_are_read(
    tmp_path: Path,
) -> None:
    """Somebody else has the store open: nobody but that head could have answered from it."""
    run(tmp_path, sys.executable, "-c", PROGRAM)
    cluster = Cluster(tmp_path / "cluster")
    cluster.head_root = tmp_path
    try:
        at = cluster.start_head()
        assert cluster.head is not None
        end(cluster.head, signal.SIGKILL)
    finally:
        cluster.close()
    held = DirectoryLock(tmp_path / "store", clock=system_clock)
    try:
        done = runwatch(tmp_path, "runs", "--json")
        assert [found["name"] for found in json.loads(done.stdout)["runs"]] == ["line"]
        for words in (
            f"no answer from the head of {tmp_path}",
            f"process {at.pid} on {this_host()} serves it at {at.http} since ",
            f"remove {tmp_path / ADDRESS_FILE}",
            f"in use by process {os.getpid()}: reading journals",
        ):
            assert words in done.stderr
    finally:
        held.release()


def test_the_note_of_an_older_head_is_read(tmp_path: Path) -> None:
    said = {"http": "http://127.0.0.1:1", "grpc": "", "token": "t", "pid": 7}
    (tmp_path / ADDRESS_FILE).write_text(json.dumps(said))
    assert read_address(tmp_path) == Listening("http://127.0.0.1:1", "", "t", 7, "", 0)
