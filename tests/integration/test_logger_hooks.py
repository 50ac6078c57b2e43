"""What a program logs with other tools: those keep what they kept, and the run has the numbers."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program

WATCHED = "from runwatch.sdk import auto; auto.begin()\n"

needed = ("wandb", "tensorboard", "mlflow", "trackio", "torch")
pytestmark = [
    pytest.mark.skipif(
        any(find_spec(name) is None for name in needed), reason="not all loggers are installed"
    ),
    pytest.mark.xdist_group("loggers"),  # the programs run once for all tests here
]

# One program for all loggers: to import them takes longest.
PROGRAM = """
import os, sys
os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.environ["WORK"])

import wandb
run = wandb.init(project="digits", name="first", mode="offline", config={"lr": 0.1}, tags=["t"])
for step in range(4):
    wandb.log({"loss": 1.0 / (step + 1), "val": {"acc": step / 4}, "text": "hello"})
run.log({"late": 1}, step=10)
run.log({"later": 2})
run.config.update({"depth": 3})
run.summary["best"] = 0.75
run.finish()

import torch
from torch.utils.tensorboard import SummaryWriter
writer, validation = SummaryWriter("tb/run"), SummaryWriter("tb/run/val")
for step in range(3):
    writer.add_scalar("loss", 9.0, step)  # wandb has that already
    writer.add_scalar("lr", torch.tensor(0.1 * step), step)
    validation.add_scalar("error", 0.5 * step, step)
    writer.add_scalars("both", {"a": step, "b": 2 * step}, step)
    writer.add_histogram("weights", torch.ones(4), step)
writer.add_hparams({"width": 8}, {"hparam/score": 0.5}, run_name="hp")
for one in (writer, validation):
    one.close()

from tensorboardX import SummaryWriter as Another
with Another("tbx") as another:
    another.add_scalar("x/speed", 3.0, 7)

from tensorboard.summary import Writer
own = Writer("own")
own.add_scalar("own/speed", 4.0, 8)
own.close()

import mlflow
mlflow.set_tracking_uri("file:" + os.path.abspath("mlruns"))
with mlflow.start_run():
    mlflow.log_params({"batch": 32})
    for step in range(3):
        mlflow.log_metric("mae", 1.0 * step, step=step)
        mlflow.log_metrics({"f1": 0.5, "recall": 0.25 * step}, step=step)
        mlflow.log_metric("without", step)

import trackio
trackio.init(project="digits", name="one", config={"heads": 4}, auto_log_gpu=False)
for step in range(3):
    trackio.log({"reward": 1.0 * step})
trackio.log({"reward": 9.0}, step=20)
trackio.finish()
print("done")
"""


def outcome(place: Path, watched: str) -> tuple[str, list[Story]]:
    place.mkdir()
    work = place / "work"
    work.mkdir()
    done = run_program(
        watched + PROGRAM,
        place / "records",
        WORK=str(work),
        WANDB_SILENT="true",
        WANDB_DIR=str(work),
        TRACKIO_DIR=str(place / "trackio"),
        HF_HUB_OFFLINE="1",
        MLFLOW_ALLOW_FILE_STORE="true",
        MLFLOW_DISABLE_TELEMETRY="true",
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, read_stories(place / "records")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Story]:
    """The program's folders without and with hooks, and what the run was told."""
    place = tmp_path_factory.mktemp("loggers")
    plain, watched = place / "plain", place / "watched"
    said, nothing = outcome(plain, "")
    assert nothing == []
    also_said, (story,) = outcome(watched, WATCHED)
    assert _plain(said, plain) == _plain(also_said, watched)
    return plain, watched, story


def test_tensorboard_has_what_it_had_and_so_have_we(both: tuple[Path, Path, Story]) -> None:
    plain, watched, story = both
    assert _tensorboard(plain / "work") == _tensorboard(watched / "work") != []
    assert story.values("lr") == pytest.approx([0.0, 0.1, 0.2])
    assert story.steps("lr") == [0, 1, 2]
    assert story.values("val/error") == [0.0, 0.5, 1.0]
    assert (story.values("both/a"), story.values("both/b")) == ([0, 1, 2], [0, 2, 4])
    assert (story.values("x/speed"), story.steps("x/speed")) == ([3.0], [7])
    assert (story.values("own/speed"), story.steps("own/speed")) == ([4.0], [8])
    assert story.values("hparam/score") == [0.5]
    assert _config(story)["width"] == 8
    assert story.warnings["tensorboard histogram"] == 3


def test_wandb_has_what_it_had_and_so_have_we(both: tuple[Path, Path, Story]) -> None:
    plain, watched, story = both
    assert _wandb(plain / "work") == _wandb(watched / "work") != []
    assert story.values("loss") == [1.0, 0.5, pytest.approx(1 / 3), 0.25]
    assert story.steps("loss") == story.steps("val.acc") == [0, 1, 2, 3]
    assert (story.steps("late"), story.steps("later")) == ([10], [10])
    config = _config(story)
    assert (config["lr"], config["depth"], config["summary"]) == (0.1, 3, {"best": 0.75})
    assert config["wandb"]["project"] == "digits"


def test_a_name_belongs_to_the_logger_that_tells_it_first(both: tuple[Path, Path, Story]) -> None:
    assert 9.0 not in both[2].values("loss")
    assert both[2].warnings["told by tensorboard too"] == 3


def test_mlflow_has_what_it_had_and_so_have_we(both: tuple[Path, Path, Story]) -> None:
    plain, watched, story = both
    assert _mlflow(plain / "work") == _mlflow(watched / "work") != {}
    assert (story.values("mae"), story.steps("mae")) == ([0, 1, 2], [0, 1, 2])
    assert story.values("recall") == [0, 0.25, 0.5]
    assert story.steps("without") == [0, None, None]
    assert _config(story)["batch"] == "32"


def test_trackio_has_what_it_had_and_so_have_we(both: tuple[Path, Path, Story]) -> None:
    plain, watched, story = both
    assert _trackio(plain) == _trackio(watched) != []
    assert story.values("reward") == [0, 1, 2, 9]
    assert story.steps("reward") == [0, 1, 2, 20]
    assert _config(story)["heads"] == 4


def test_nothing_of_ours_failed(both: tuple[Path, Path, Story]) -> None:
    what = set(both[2].warnings)
    assert {name for name in what if "could not" in name or "note what" in name} == set()


@pytest.mark.parametrize(
    "watched",
    [
        WATCHED,
        pytest.param("import runwatch; runwatch.init('mine')\n", marks=pytest.mark.soak),
    ],
)
def test_an_error_that_wandb_shows_is_shown_once(watched: str, tmp_path: Path) -> None:
    program = """
import wandb
wandb.init(mode="offline", dir=%r)
wandb.log([1, 2])
"""
    text = program % str(tmp_path)
    done = [
        run_program(start + text, tmp_path / str(len(start)), WANDB_SILENT="true")
        for start in ("\n", watched)
    ]
    plain, ours = ([line.split(", line")[0] for line in d.stderr.splitlines()] for d in done)
    assert plain == ours
    assert plain.count("Traceback (most recent call last):") == 1
    (story,) = read_stories(tmp_path / str(len(watched)))
    assert story.end["status"] == "failed"
    assert "must be passed a dictionary" in str(story.end["exception"])
    (told,) = story.bodies("exception")
    assert "must be passed a dictionary" in told["message"]


# ── what the loggers keep ─────────────────────────────────────────────────────────────────────


def _plain(text: str, place: Path) -> str:
    return text.replace(str(place), "PLACE")


def _config(story: Story) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for body in story.bodies("config"):
        if body["part"] == "user":
            merged |= body["values"]
    return merged


def _tensorboard(place: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found = []
    for path in sorted(place.rglob("events.out.tfevents*")):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                value.histo.Clear()
                folder = str(path.parent.relative_to(place))
                found.append((folder, event.step, value.SerializeToString(deterministic=True)))
    return sorted(found)


def _wandb(place: Path) -> list[Any]:
    """Its rows, and what it was told of summary and settings, without times."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    (path,) = place.rglob("*.wandb")
    for data in _leveldb_log(path.read_bytes()):
        record = Record.FromString(data)
        set_by_program = [item for item in record.summary.update if item.key == "best"]
        for item in (*record.history.item, *set_by_program, *record.config.update):
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                found.append((record.WhichOneof("record_type"), name, item.value_json))
    return sorted(found)


def _leveldb_log(data: bytes) -> Iterator[bytes]:
    place, parts = 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def _mlflow(place: Path) -> dict[str, Any]:
    (folder,) = [path.parent for path in place.rglob("metrics")]
    told: dict[str, Any] = {
        path.name: [line.split()[1:3] for line in path.read_text().splitlines()]
        for path in folder.glob("metrics/*")
    }
    return told | {path.name: path.read_text() for path in folder.glob("params/*")}


def _trackio(place: Path) -> list[Any]:
    (path,) = (place / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    return [(step, json.loads(metrics)) for step, metrics in rows]
