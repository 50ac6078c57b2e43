from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import runwatch
from runwatch.compat.mldiagnostics import metrics
from runwatch.compat.mldiagnostics.custom_types.metric_types import METRIC_UNITS, MetricType
from runwatch.testing import Story

Tell = Callable[[], Story]


def test_record_carries_metric_step_unit_and_value(story: Tell) -> None:
    runwatch.init("metrics")
    for step in (1, 2):
        metrics.record(MetricType.LOSS, 0.5 / step, step=step)
        metrics.record("step_time", 2, step=step)
    told = story()
    assert [(n.metric, n.step, n.value, n.unit) for n in told.numbers] == [
        ("loss", 1, 0.5, "1"), ("step_time", 1, 2.0, "s"),
        ("loss", 2, 0.25, "1"), ("step_time", 2, 2.0, "s"),
    ]  # fmt: skip


def test_the_name_and_the_type_are_one_series(story: Tell) -> None:
    run = runwatch.init("one")
    metrics.record("loss", 1.0)
    metrics.record(MetricType.LOSS, 2.0)
    run.log({MetricType.LOSS: 3.0, "lr": 1.0})
    run.log({"loss": 4.0, "lr": 1.0})
    assert story().values("loss") == [1.0, 2.0, 3.0, 4.0]


def test_labels_make_a_series_of_their_own(story: Tell) -> None:
    runwatch.init("labels")
    metrics.record("loss", 1.0, labels={"split": "train"})
    metrics.record("loss", 2.0, labels={"split": "test"})
    metrics.record("loss", 3.0)
    metrics.record("loss", 4.0, labels={"split": "test"})
    told = story()
    assert [(n.labels.get("split"), n.value) for n in told.numbers] == [
        ("train", 1.0), ("test", 2.0), (None, 3.0), ("test", 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize("labels", ["x", 7, ["a"], {1: object(), "a": None}, object()])
def test_no_label_raises(labels: Any, story: Tell) -> None:
    runwatch.init("labels")
    metrics.record("loss", 1.0, labels=labels)
    assert story().values("loss") == [1.0]


@pytest.mark.parametrize("value", ["text", {"a": 1}, None, [], [1, None], object(), 1j])
@pytest.mark.parametrize("name", ["m", None, 7, b"m", ["m"]])
def test_no_name_and_no_value_raises(name: Any, value: Any, story: Tell) -> None:
    runwatch.init("odd")
    metrics.record(name, value, step=1)
    assert story().numbers == []


def test_record_metrics_fills_in_the_step(story: Tell) -> None:
    runwatch.init("several")
    metrics.record_metrics(
        [
            {"metric_name": "a", "value": 1.0},
            {"metric_name": "b", "value": 2.0, "step": 9},
            {"metric_name": "c", "value": 3.0, "labels": {"x": "y"}},
            {"value": 4.0},
            "not a dict",  # type: ignore[list-item]
            {"metric_name": "d", "value": 5.0, "step": None},
        ],
        step=5,
    )
    metrics.record_metrics(7)  # type: ignore[arg-type]
    told = story()
    assert [(n.metric, n.step) for n in told.numbers] == [("a", 5), ("b", 9), ("c", 5), ("d", None)]
    assert told.warnings["metrics item"] == 2


def test_one_call_may_record_on_every_rank(story: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    runwatch.init("ranks")
    for _ in range(2):
        metrics.record("loss", 1.0)
        metrics.record("mine", 2.0, record_on_all_hosts=True)
        metrics.record("mine", 3.0)
    told = story()
    assert told.values("loss") == []
    assert told.values("mine") == [2.0, 2.0]


def test_the_19_types_and_their_units() -> None:
    assert len(MetricType) == 19
    assert set(METRIC_UNITS) == set(MetricType)
    assert METRIC_UNITS[MetricType.THROUGHPUT] == "1/s"
    assert MetricType.MFU.value == "mfu"
    assert {MetricType.LOSS: 1} == {"loss": 1}
