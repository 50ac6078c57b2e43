"""Programs that nobody changed, as people write them, under `runwatch exec`: they print, return and
leave behind what they do without it, and their steps, metrics, waits, checkpoints, evaluation and
lines are in the store."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from runwatch.cli import source
from runwatch.record import BEGIN
from runwatch.testing import Story, read_stories
from tests import fork_server
from tests.sampling import in_a_soak

PROGRAMS: Final = Path(__file__).parent / "unchanged"
PYTHON: Final = (sys.executable,)
TORCHRUN: Final = (
    *PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    name: str
    needs: str
    prints: str
    """Part of a line that it prints."""
    launcher: tuple[str, ...] = PYTHON
    ranks: int = 1
    steps: int = 0
    """What the program itself counts."""
    metrics: frozenset[str] = frozenset()
    spans: frozenset[str] = frozenset()
    leaves: str = ""
    """A file that it writes."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROGRAMS_AS_THEY_ARE: Final = (
    Program(
        "plain_torch", "torch", "epoch 2: loss 6.", steps=60,
        spans=words("data_loading evaluation"), leaves="last.pt",
    ),
    Program("ranks", "torch", "rank 1: -0.3", TORCHRUN, ranks=2, steps=20, leaves="last.pt"),
    Program(
        "hf_trainer", "transformers", "after 12 steps", steps=12,
        metrics=words("loss grad_norm learning_rate eval_loss epoch train_loss"),
        spans=words("data_loading evaluation checkpoint_save"), leaves="checkpoint-12",
    ),
    Program(
        "lightning_fit", "pytorch_lightning", "after 16 steps", steps=16,
        metrics=words("train_loss val_loss epoch"),
        spans=words("data_loading evaluation checkpoint_save"), leaves="checkpoints",
    ),
    Program(
        "keras_fit", "keras", "val_loss", steps=12, metrics=words("loss val_loss epoch"),
        spans=words("evaluation checkpoint_save"), leaves="best.weights.h5",
    ),
    Program(
        "jax_orbax", "optax", "loss 1", steps=40, spans=words("checkpoint_save"), leaves="orbax"
    ),
    Program("wandb_script", "wandb", "finished", metrics=words("loss accuracy"), leaves="wandb"),
    Program(
        "tensorboard_script", "tensorboard", "written",
        metrics=words("train/loss rate/up rate/down"), leaves="events.out.tfevents",
    ),
)  # fmt: skip
EVERY_DAY: Final = words("plain_torch hf_trainer jax_orbax wandb_script tensorboard_script")
FOUR_RANKS: Final = replace(
    PROGRAMS_AS_THEY_ARE[1], prints="rank 3: -0.1", launcher=(*TORCHRUN[:-1], "4"), ranks=4
)


def execute(
    program: Program, folder: Path, *before: str, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    file = str(PROGRAMS / f"{program.name}.py")
    return subprocess.run(
        [*before, *program.launcher, file, str(folder)],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", "RUNWATCH_AGENT": "off", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
    )


def unwatched(program: Program, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """The program alone, what it does without us: torch may have been imported already."""
    return execute(program, folder, **{fork_server.WARM_START: "torch"})


def watched(program: Program, folder: Path, root: Path) -> subprocess.CompletedProcess[bytes]:
    exec_ = (sys.executable, "-m", "runwatch", "exec", "--")
    return execute(program, folder, *exec_, RUNWATCH_DIR=str(root))


def lines(output: bytes, folder: Path) -> Sequence[bytes]:
    """Ranks print in any order."""
    return sorted(output.replace(os.fsencode(folder), b"FOLDER").splitlines())


@contextmanager
def asking(root: Path) -> Iterator[source.Source]:
    with source.open_source(argparse.Namespace(dir=root, head=None, json=True)) as head:
        yield head


def ranks_of(root: Path) -> list[Story]:
    return [story for story in read_stories(root) if story.origin.role == "process"]


def names(folder: Path) -> set[str]:
    return {path.name.split(".tfevents")[0] for path in folder.iterdir()}


@pytest.mark.soak
def test_a_program_that_is_run_again_was_not_disrupted(tmp_path: Path) -> None:
    """It ended well and begins anew: that is no restart after a failure, and no work was lost."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    program, root = PROGRAMS_AS_THEY_ARE[0], tmp_path / "runwatch"
    for attempt in ("first", "second"):
        assert watched(program, tmp_path / attempt, root).returncode == 0
    with asking(root) as head:
        (run,) = head.get("/runs")["runs"]
        assert (run["state"], run["attempts"]) == ("completed", 2)
        account = head.get(f"/runs/{run['run']}/goodput")
    assert account["disruptions"] == []
    assert account["steps"] == 2 * program.steps


def test_a_program_that_fails(tmp_path: Path) -> None:
    """In a function that a hook has wrapped: it fails with the traceback that it has without us,
    and the traceback is in the store."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    program, root = Program("failing", "torch", ""), tmp_path / "runwatch"
    alone = unwatched(program, tmp_path / "alone")
    beside = watched(program, tmp_path / "beside", root)
    assert (beside.returncode, beside.stdout) == (alone.returncode, alone.stdout) == (1, b"")
    assert lines(beside.stderr, tmp_path / "beside") == lines(alone.stderr, tmp_path / "alone")
    with asking(root) as head:
        (run,) = head.get("/runs")["runs"]
        assert (run["state"], run["attempts"]) == ("failed", 1)
        assert "RuntimeError: the disk is gone" in run["reason"]
        entries = head.get(f"/runs/{run['run']}/logs")["entries"]
    (error,) = [entry["exception"] for entry in entries if entry["exception"]]
    for part in ("FileNotFoundError", "direct cause", "RuntimeError", "failing.py", "in save"):
        assert part in error["text"]


@pytest.mark.parametrize(
    "program",
    [
        *(p if p.name in EVERY_DAY else in_a_soak(p) for p in PROGRAMS_AS_THEY_ARE),
        in_a_soak(FOUR_RANKS),
    ],
    ids=lambda program: f"{program.name}-{program.ranks}" if program.ranks > 1 else program.name,
)
def test_a_program_that_nobody_changed(program: Program, tmp_path: Path) -> None:
    if find_spec(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    root = tmp_path / "runwatch"
    alone = unwatched(program, tmp_path / "alone")
    beside = watched(program, tmp_path / "beside", root)

    assert program.prints in alone.stdout.decode(), alone.stderr.decode()
    assert beside.returncode == alone.returncode == 0, beside.stderr.decode()
    for ours, theirs in ((beside.stdout, alone.stdout), (beside.stderr, alone.stderr)):
        assert lines(ours, tmp_path / "beside") == lines(theirs, tmp_path / "alone")
    left = names(tmp_path / "beside")
    assert left == names(tmp_path / "alone")
    assert any(name.startswith(program.leaves.split(".tfevents")[0]) for name in left)

    stories = ranks_of(root)
    assert len(stories) == program.ranks
    for story in stories:
        spans = [edge.name for edge in story.edges if edge.edge == BEGIN]
        whole = [number for number in story.numbers if number.metric == "step_seconds"]
        stretches = {body["name"] for body in story.bodies("elapsed")}
        assert len(whole) == program.steps
        assert program.spans <= {*spans, *stretches}
        assert not story.bodies("sdk_warning")
    with asking(root) as head:
        (run,) = head.get("/runs")["runs"]
        assert (run["name"], run["state"], run["attempts"]) == (program.name, "completed", 1)
        assert run["ranks"] == program.ranks
        texts = [entry["text"] for entry in head.get(f"/runs/{run['run']}/logs")["entries"]]
        assert any(program.prints in text for text in texts)
        metrics = {series["metric"] for series in head.get(f"/runs/{run['run']}/series")["series"]}
        assert program.metrics <= metrics
        assert head.get(f"/runs/{run['run']}/goodput")["steps"] == program.steps
