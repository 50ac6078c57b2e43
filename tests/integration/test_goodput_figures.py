"""What a real program tells of itself, and the figures that are made of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.__main__ import main
from runwatch.head.main import LocalHead
from runwatch.record import BEGIN, END, RunId
from runwatch.rows import SpanRow
from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

ROLLOUTS = """
import threading, time, runwatch
run = runwatch.init("rl", id="rl", group="sweep")
for step in range(3):
    with run.span("rollout", useful=True):
        time.sleep(0.02)
    with run.span("reward"):
        time.sleep(0.01)
    with run.step(step):
        time.sleep(0.005)
@runwatch.span("rollout", useful=True)
def beside(): time.sleep(0.01)
thread = threading.Thread(target=beside)
thread.start()
thread.join()
run.finish()
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """The directory of a program that has run, and was submitted a minute before."""
    queued = f"{time.time() - 60:.3f}"
    done = run_program(ROLLOUTS, tmp_path, RUNWATCH_QUEUED_AT=queued, RUNWATCH_USER="ada")
    assert done.returncode == 0, done.stderr
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["goodput", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def lengths_ns(rows: list[SpanRow], name: str) -> int:
    ends = {row.span: row.time_ns for row in rows if row.edge == END}
    return sum(
        ends[row.span] - row.time_ns for row in rows if row.name == name and row.edge == BEGIN
    )


def test_rollouts_are_productive(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "rl", "--dir", str(told))
    head = LocalHead(told)
    try:
        spans = head.store.spans(RunId("rl"))
    finally:
        head.close()
    spent = {s["name"]: s["ns"] for s in found["spent"] if s["ns"]}
    rollouts, steps = lengths_ns(spans, "rollout/useful"), lengths_ns(spans, "step")
    assert spent["custom:reward"] == lengths_ns(spans, "reward")
    assert "custom:rollout" not in " ".join(spent)
    # What the first step took longer than usual is startup; the rollouts are whole.
    assert rollouts < spent["productive"] <= rollouts + steps


def test_whose_it_is_and_how_long_it_was_queued(
    told: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (story,) = read_stories(told)
    [start] = story.bodies("run_start")
    assert start["user"] == "ada"
    figures = asked(capsys, "rl", "--dir", str(told))["figures"]
    assert figures["queued_ns"] >= 59 * 10**9
    assert figures["ettr"] < figures["runtime_goodput"]
    assert figures["ettr"] == pytest.approx(
        figures["scheduling_goodput"] * figures["runtime_goodput"]
    )
    assert figures["unknown"] == ["program"]


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["--group", "sweep"], 1),
        (["--user", "ada", "--since", "-1h"], 1),
        (["--user", "bob"], 0),
        (["--group", "sweep", "--until", "-1h"], 0),
    ],
)
def test_runs_are_found_by_group_user_and_time(
    told: Path, capsys: pytest.CaptureFixture[str], words: list[str], runs: int
) -> None:
    found = asked(capsys, *words, "--dir", str(told))
    assert (len(found["runs"]), found["total"]) == (runs, runs)
    assert [(run["user"], run["group"]) for run in found["runs"]] == [("ada", "sweep")] * runs


@pytest.mark.parametrize(("by", "name"), [("group", "sweep"), ("user", "ada"), ("week", "-W")])
def test_sums_are_shown_by_group_user_and_week(
    told: Path, capsys: pytest.CaptureFixture[str], by: str, name: str
) -> None:
    [part] = asked(capsys, "--by", by, "--dir", str(told))["parts"]
    assert name in part["name"]
    assert part["runs"] == 1
    assert main(["goodput", "--by", by, "--price", "2", "--dir", str(told)]) == 0
    shown = capsys.readouterr().out
    assert name in shown and "largest loss" in shown and "cost" in shown
    assert main(["goodput", "rl", "--by", by, "--dir", str(told)]) != 0
    assert "RUN does not go with" in capsys.readouterr().err
