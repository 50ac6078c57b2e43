"""Ray Train, DeepSpeed and TensorFlow themselves, under `runwatch exec`.

They are too large for our environment: each needs one of its own.  What our other tests
have in their place are stand-ins, which are to behave as these do.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.testing import Story, read_stories
from tests.integration.hooked_programs import PROGRAMS, seconds, spans, steps
from tests.integration.sdk_programs import program_environment

pytestmark = pytest.mark.soak

SECONDS: Final = 180
EXEC: Final = (sys.executable, "-m", "runwatch", "exec", "--")
PYTHON: Final = (sys.executable,)
TORCHRUN: Final = (*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
DEEPSPEED: Final = (*PYTHON, "-m", "deepspeed.launcher.runner", "--num_gpus", "2")
QUIET: Final = {
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RUNWATCH_QUIET": "1",
}


def needs(package: str) -> pytest.MarkDecorator:
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@dataclass
class Both:
    """A program without us, and with us."""

    plain: subprocess.CompletedProcess[str]
    watched: subprocess.CompletedProcess[str]
    ranks: list[Story]
    """Of all attempts, in their order."""

    def is_as_without_us(self, code: int = 0) -> None:
        """What ranks print comes in any order, and DeepSpeed's lines begin with the time."""
        assert (self.plain.returncode, self.watched.returncode) == (code, code), self.watched.stderr
        assert _lines(self.watched.stdout) == _lines(self.plain.stdout)
        assert "runwatch" not in self.watched.stderr
        for story in self.ranks:
            assert story.bodies("warning") == []

    def who(self) -> list[int]:
        return [rank_of(story) for story in self.ranks]

    def ends(self) -> list[str]:
        return [end["status"] for story in self.ranks for end in story.bodies("run_end")]


def both(
    program: str, folder: Path, *more: str, by: tuple[str, ...] = PYTHON, **environment: str
) -> Both:
    records = folder / "runwatch"
    variables = program_environment(records, **QUIET, **environment)

    def run(name: str, *before: str) -> subprocess.CompletedProcess[str]:
        files = folder / name
        files.mkdir()
        return subprocess.run(
            [*before, *by, str(PROGRAMS / f"{program}.py"), *more, str(files)],
            cwd=files,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    plain, watched = run("plain"), run("watched", *EXEC)
    ranks = [story for story in read_stories(records) if story.origin.role == "process"]
    ranks.sort(key=lambda story: story.origin.start_ns)
    return Both(plain, watched, ranks)


def _lines(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if not line.startswith("["))


def rank_of(story: Story) -> int:
    (start,) = story.bodies("run_start")
    rank: int = start["rank"]
    return rank


def at(story: Story, metric: str) -> list[int | None]:
    return [number.step for number in story.numbers if number.metric == metric]


def of(story: Story, kind: str) -> Mapping[str, Any]:
    (body,) = story.bodies(kind)
    return body


# ── Ray Train ─────────────────────────────────────────────────────────────────────────────────


@needs("ray")
@needs("torch")
@pytest.mark.parametrize("version", ["2", "1"])
def test_workers_of_ray_are_ranks_and_the_driver_is_none(version: str, tmp_path: Path) -> None:
    ran = both("ray_torch_trainer", tmp_path, RAY_TRAIN_V2_ENABLED=str(int(version) - 1))
    if version == "2":  # the first one draws tables with times
        ran.is_as_without_us()
    assert "checkpoint True" in ran.watched.stdout
    assert sorted(ran.who()) == [0, 1]
    assert ran.ends() == ["completed"] * 2
    first, second = sorted(ran.ranks, key=rank_of)
    for story in (first, second):
        assert of(story, "run_start")["world_size"] == 2
        assert list(steps(story)) == list(range(12))
        # Ray asks for a batch before it hands out the one before: the last has none to wait for.
        assert len(story.values("data_wait_seconds")) == 9
    assert at(first, "loss") == at(first, "epoch") == [3, 7, 11]  # one report for each epoch
    assert first.values("loss")[-1] == pytest.approx(1.101468, abs=1e-4)
    assert at(second, "loss") == []
    if version == "2":
        assert seconds(first, "checkpoint_save")
        assert not seconds(second, "checkpoint_save")


@needs("ray")
@pytest.mark.parametrize("how", ["once", "always"])
def test_workers_of_ray_that_fail(how: str, tmp_path: Path) -> None:
    ran = both("ray_restart", tmp_path, how)
    ran.is_as_without_us(code=0 if how == "once" else 1)
    assert sorted(ran.who()[:2]) == sorted(ran.who()[2:]) == [0, 1]
    failed = [story for story in ran.ranks if of(story, "run_end")["status"] == "failed"]
    assert [rank_of(story) for story in failed] == [1] * (1 if how == "once" else 2)
    for story in failed:
        assert of(story, "exception")["message"] == "no such batch"
    others = [of(s, "run_end").get("reason") for s in ran.ranks if s not in failed]
    stopped = "stopped by Ray Train"
    assert others == ([stopped, None, None] if how == "once" else [stopped] * 2)


# ── DeepSpeed ─────────────────────────────────────────────────────────────────────────────────


@needs("deepspeed")
@pytest.mark.parametrize("by", [TORCHRUN, DEEPSPEED], ids=["torchrun", "deepspeed"])
def test_an_engine_of_deepspeed(by: tuple[str, ...], tmp_path: Path) -> None:
    ran = both("deepspeed_engine", tmp_path, by=by)
    ran.is_as_without_us()
    assert "after 8 updates" in ran.watched.stdout
    assert sorted(ran.who()) == [0, 1]
    for story in ran.ranks:
        assert list(steps(story)) == list(range(1, 9))  # two batches each
        assert len(story.values("data_wait_seconds")) == 8
        assert (spans(story, "checkpoint_save"), spans(story, "checkpoint_restore")) == (2, 1)
        assert "done" not in of(story, "run_end")
    first = min(ran.ranks, key=rank_of)
    assert at(first, "Train/Samples/lr") == list(range(1, 9))


@needs("deepspeed")
def test_a_pipeline_of_deepspeed(tmp_path: Path) -> None:
    ran = both("deepspeed_pipeline", tmp_path, by=TORCHRUN)
    ran.is_as_without_us()
    assert sorted(ran.who()) == [0, 1]
    for story in ran.ranks:
        assert list(steps(story)) == list(range(1, 6))
    assert at(min(ran.ranks, key=rank_of), "Train/Samples/train_loss") == list(range(1, 6))


# ── TensorFlow ────────────────────────────────────────────────────────────────────────────────


@needs("tensorflow")
def test_fit_of_keras_on_tensorflow(tmp_path: Path) -> None:
    ran = both("tf_keras_fit", tmp_path)
    ran.is_as_without_us()
    (story,) = ran.ranks
    assert list(steps(story)) == at(story, "loss") == at(story, "mae") == list(range(18))
    assert at(story, "val_loss") == at(story, "epoch") == [5, 11, 17]
    assert len(story.values("test_loss")) == 1
    assert (spans(story, "evaluation"), spans(story, "checkpoint_save")) == (4, 3)
    # Of the TensorBoard callback: two folders, two curves.
    assert at(story, "train/epoch_loss") == at(story, "validation/epoch_loss") == [0, 1, 2]
    assert story.values("validation/epoch_loss") == pytest.approx(story.values("val_loss"))
    assert at(story, "train/epoch_learning_rate") == [0, 1, 2]
    assert at(story, "batch_loss") == []  # which it does not write
    assert of(story, "run_end")["done"] is True


@needs("tensorflow")
def test_a_loop_of_ones_own_in_tensorflow(tmp_path: Path) -> None:
    ran = both("tf_tape", tmp_path)
    ran.is_as_without_us()
    (story,) = ran.ranks
    assert at(story, "loss") == list(range(24))
    assert at(story, "epoch_loss") == [0, 1, 2]
    assert list(steps(story)) == list(range(2, 24))  # two numbers in a row may be chance
    assert spans(story, "checkpoint_save") == 3


@needs("tensorflow")
def test_workers_of_tensorflow_are_ranks(tmp_path: Path) -> None:
    ran = both("tf_workers", tmp_path)
    ran.is_as_without_us()
    assert sorted(ran.who()) == [0, 1]
    for story in ran.ranks:
        assert list(steps(story)) == list(range(2, 10))
    first, second = sorted(ran.ranks, key=rank_of)
    assert at(first, "loss") == list(range(10))
    assert at(second, "loss") == []
