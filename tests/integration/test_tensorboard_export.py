"""A run in TensorBoard: its own server shows the numbers of the run, and goes on with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runwatch.testing import read_stories, until
from tests.integration.asked import Asked
from tests.integration.processes import end, free_port

PROGRAM = """
import os, sys, runwatch
run = runwatch.init("curves", config={"lr": 0.1, "model": {"layers": 3}})
run.log(note="before the first step")
for step, x in run.steps(range(40), start=100):
    run.log({"train/loss": 1 / (step + 1), "odd": float("nan") if step % 7 == 0 else step / 3})
    if "--slowly" in sys.argv:
        sys.stdin.readline()
run.log(note="all is well")
run.finish()
"""


@contextmanager
def tensorboard(logs: Path) -> Iterator[str]:
    """The real server; its answers are those of its page."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--port", str(port),
         "--load_fast", "false", "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server, signal.SIGKILL)


def asked(url: str, path: str, **parameters: str) -> Any:
    try:
        with urlopen(f"{url}/data/{path}?{urlencode(parameters)}", timeout=100) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_tensorboard_shows_the_numbers_of_the_run(tmp_path: Path) -> None:
    ask, logs = Asked(tmp_path / "recorded"), tmp_path / "logs"
    ask.python("-c", PROGRAM)
    words = ask("export", "curves", "--format", "tensorboard", "-o", str(logs / "one")).stdout
    assert words.startswith(f"Wrote {logs / 'one'}: ")
    account = json.loads(ask("goodput", "curves", "--json").stdout)
    [story] = read_stories(ask.root)
    with tensorboard(logs) as url:
        shown = until(lambda: asked(url, "plugin/scalars/tags"), what="TensorBoard's answer")
        assert set(shown) == {"one/rank-0", "one/run"}
        assert set(shown["one/rank-0"]) == {number.metric for number in story.numbers}
        for metric in shown["one/rank-0"]:
            points = asked(url, "plugin/scalars/scalars", run="one/rank-0", tag=metric)
            assert [(at, step, str(value)) for at, step, value in points] == [
                (number.time_ns / 10**9, number.step, _shown(number.value))
                for number in story.numbers
                if number.metric == metric
            ]
        [*_, (_, _, percent)] = asked(
            url, "plugin/scalars/scalars", run="one/run", tag="runwatch/goodput"
        )
        assert np.float32(percent) == np.float32(account["goodput"] * 100)
        notes = asked(url, "plugin/text/text", run="one/run", tag="note/rank-0")
        assert [note["step"] for note in notes][1:] == [139]
        assert "all is well" in notes[-1]["text"]


def _shown(value: float) -> str:
    return "NaN" if np.isnan(value) else str(float(np.float32(value)))


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_an_export_follows_its_run_and_goes_on_after_a_kill(tmp_path: Path, kills: int) -> None:
    ask, logs = Asked(tmp_path / "recorded"), tmp_path / "logs"
    trainer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--slowly"], env=ask._clean(), stdin=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert trainer.stdin is not None
    try:
        until(lambda: list(ask.root.glob("journals/*/*.seg")), what="the run to begin")
        follower = _follow(ask, logs)
        try:
            for _ in range(kills):
                for _ in range(2):
                    before = _size(logs)
                    trainer.stdin.write("\n" * (10 // kills))
                    trainer.stdin.flush()
                    until(lambda before=before: _size(logs) > before, what="points to come")
                end(follower, signal.SIGKILL)
                follower = _follow(ask, logs)
            trainer.stdin.write("\n" * 40)
            trainer.stdin.close()
            assert trainer.wait(100) == 0
            assert follower.wait(100) == 0
        finally:
            end(follower, signal.SIGKILL)
    finally:
        end(trainer, signal.SIGKILL)
    [story] = read_stories(ask.root)
    assert _points(logs / "rank-0") == {
        metric: [(n.time_ns / 10**9, n.step) for n in story.numbers if n.metric == metric]
        for metric in {number.metric for number in story.numbers}
    }
    account = json.loads(ask("goodput", "curves", "--json").stdout)
    assert _last(logs / "run", "runwatch/goodput") == np.float32(account["goodput"] * 100)


def _follow(ask: Asked, logs: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "runwatch.cli", "export", "curves", "--format", "tensorboard",
         "-o", str(logs), "--follow", "--every", "0.2"],
        env=ask._clean() | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _size(logs: Path) -> int:
    """`os.walk` bears that a folder goes away meanwhile."""
    found = [Path(folder, name) for folder, _, names in os.walk(logs) for name in names]
    return sum(path.stat().st_size for path in found if "tfevents" in path.name)


def _points(folder: Path) -> dict[str, list[tuple[float, int]]]:
    read = _read(folder)
    return {
        tag: [(point.wall_time, point.step) for point in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def _last(folder: Path, tag: str) -> float:
    return float(_read(folder).Scalars(tag)[-1].value)


def _read(folder: Path) -> EventAccumulator:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return read
