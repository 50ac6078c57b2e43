"""Ray Train, by a stand-in with the documented arguments: Ray itself is too large for our tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import runwatch
from runwatch.sdk.guard import tally
from runwatch.testing import Story


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("ray.train")
    module.reports = []

    def report(
        metrics: dict[str, Any],
        checkpoint: Any = None,
        checkpoint_dir_name: str | None = None,
    ) -> None:
        if not isinstance(metrics, dict):
            raise TypeError("metrics is a dict")
        module.reports.append((metrics, checkpoint))

    module.report = report
    monkeypatch.setitem(sys.modules, "ray.train", module)
    return module


def test_reports_are_metrics_and_no_steps(train: Any, story: Callable[[], Story]) -> None:
    before = train.report
    run = runwatch.init("ours", auto=True)
    for step in range(2):
        with run.step(step):
            train.report({"loss": 1.0 / (step + 1), "name": "x"}, checkpoint=object())
    train.report(metrics={"accuracy": 0.5})
    with pytest.raises(TypeError):
        train.report(3)
    told = story()
    assert train.report is before
    assert (told.values("loss"), told.steps("loss")) == ([1.0, 0.5], [0, 1])
    assert told.values("accuracy") == [0.5]
    assert len(train.reports) == 3
    assert tally.counts == {}


def test_a_version_that_is_not_known_is_left_alone(train: Any) -> None:
    def report(**results: Any) -> None: ...

    train.report = report
    runwatch.init("ours", auto=True)
    assert train.report is report
    assert any("ray" in what for what in tally.counts)
