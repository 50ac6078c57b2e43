"""Each example runs as a person would run it, and its journal holds what its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import ROOT, program_environment


def run_example(name: str, directory: Path) -> tuple[str, Story]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name / "train.py")],
        env=program_environment(directory),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (story,) = read_stories(directory)
    return done.stdout + done.stderr, story


def test_the_first_run(tmp_path: Path) -> None:
    said, story = run_example("01-first-run", tmp_path)
    assert said == "y = 3.00 x + 2.00\n"
    assert story.steps("loss") == list(range(200))
    assert story.values("loss")[-1] < 0.05 < story.values("loss")[0]
    assert len(story.values("step_seconds")) == len(story.values("data_wait_seconds")) == 200
    assert [e.step for e in story.edges if e.name == "checkpoint_save"][::2] == [49, 99, 149, 199]
    assert story.config("user")["learning_rate"] == 0.1
    assert story.end["status"] == "completed"


def test_the_mldiagnostics_program(tmp_path: Path) -> None:
    said, story = run_example("02-mldiagnostics-program", tmp_path)
    assert said == "INFO:root:MLRun created: mldiagnostics-program\n"
    assert story.steps("loss") == story.steps("throughput") == list(range(10, 101, 10))
    assert story.warnings == {}


@pytest.mark.parametrize("name", ["01-first-run", "02-mldiagnostics-program"])
def test_every_example_says_how_to_run_it(name: str) -> None:
    text = (ROOT / "examples" / name / "README.md").read_text()
    assert f"python examples/{name}/train.py" in text
