"""Ray Train, by stand-ins; `tests/integration/test_frameworks_real.py` has Ray itself, which is too
large for most tests."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import runwatch
from runwatch.sdk import front
from runwatch.sdk.guard import tally
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.trainers import ray_driver, ray_worker
from runwatch.sdk.run import Run
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


def test_a_checkpoint_may_be_the_second_argument(train: Any, story: Callable[[], Story]) -> None:
    report = train.report

    def slow(metrics: Any, checkpoint: Any = None, checkpoint_dir_name: Any = None) -> None:
        time.sleep(0.02)
        report(metrics, checkpoint)

    train.report = slow
    runwatch.init("ours", auto=True)
    train.report({"loss": 1.0}, object())
    train.report({"loss": 1.0}, None)
    assert [body["name"] for body in story().bodies("elapsed")] == ["checkpoint_save"]


# ── workers: a thread trains, and then the process is killed ──────────────────────────────────


class ThreadRunner:
    """Runs a function in a thread, and keeps what it raises."""

    def __init__(self) -> None:
        self.error = ""

    def run(self, target: Callable[[], object]) -> None:
        def run_target() -> None:
            try:
                target()
            except ValueError as error:
                frames = len(traceback.extract_tb(error.__traceback__)) - 1  # without this one
                self.error = traceback.format_exc(limit=-frames)

        self._thread = threading.Thread(target=run_target, name=target.__name__)
        self._thread.start()
        self._thread.join()


class RayTrainWorker:
    def shutdown(self) -> str:
        return "shut"


class TrainSession:
    def __init__(self, target: Callable[[], object], world_rank: int | None) -> None:
        self.world_rank = world_rank
        self.training_thread = threading.Thread(target=target)

    def start(self) -> None:
        self.training_thread.start()
        self.training_thread.join()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Teller:
    for name, contents in (
        (ray_worker.WORKER, {"ThreadRunner": ThreadRunner, "RayTrainWorker": RayTrainWorker}),
        (ray_worker.SESSION, {"_TrainSession": TrainSession}),
    ):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    for kind, name in (
        (ThreadRunner, "run"), (RayTrainWorker, "shutdown"), (TrainSession, "start"),
    ):  # fmt: skip
        monkeypatch.setattr(kind, name, vars(kind)[name])  # pytest puts them back
    monkeypatch.setenv("RUNWATCH_HOOKS", "off")
    tell = Teller(begin=lambda: begin(tell))
    for _ in range(2):  # once for each of the two modules
        ray_worker.install(tell)
    return tell


def begin(tell: Teller) -> Run:
    run = runwatch.init("ours")
    tell.attach(run)
    return run


def test_the_thread_that_trains_takes_the_steps_and_ends_the_run(
    worker: Teller, story: Callable[[], Story]
) -> None:
    threads: list[str] = []

    def train() -> None:
        threads.append(threading.current_thread().name)
        assert not worker.beside

    ThreadRunner().run(train)
    assert threads == ["train"]
    (end,) = story().bodies("run_end")
    assert (end["status"], end["explicit"]) == ("completed", True)  # whoever kills it afterwards
    assert RayTrainWorker().shutdown() == "shut"
    assert tally.counts == {}


def test_what_a_worker_raises_is_told_and_shown_as_without_us(
    worker: Teller, story: Callable[[], Story]
) -> None:
    def train() -> None:
        raise ValueError("no such batch")

    runner = ThreadRunner()
    runner.run(train)
    told = story()
    assert told.bodies("run_end")[0]["exception"] == "ValueError: no such batch"
    assert told.bodies("exception")[0]["message"] == "no such batch"
    assert "in train\n" in runner.error
    assert "ray_worker" not in runner.error


def test_a_worker_that_ray_stops_says_so(worker: Teller, story: Callable[[], Story]) -> None:
    ThreadRunner().run(lambda: RayTrainWorker().shutdown())
    (end,) = story().bodies("run_end")
    assert (end["status"], end["reason"]) == ("killed", "stopped by Ray Train")


@pytest.mark.parametrize("rank", [0, None])
def test_a_session_of_the_first_version(rank: int | None, worker: Teller) -> None:
    beside: list[bool] = []
    TrainSession(lambda: beside.append(worker.beside), rank).start()
    assert beside == [rank is None]  # a trial of Ray Tune is left alone


# ── drivers ───────────────────────────────────────────────────────────────────────────────────


def test_a_driver_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tuner:
        def fit(self) -> str:
            return "result"

    module = ModuleType("ray.tune.tuner")
    vars(module)["Tuner"] = Tuner
    monkeypatch.setitem(sys.modules, "ray.tune.tuner", module)
    tell = Teller(begin=lambda: begin(tell))
    ray_driver.install(tell)
    assert tell.expects
    assert Tuner().fit() == "result"
    assert not tell.expects
    tell.metrics({"loss": 1.0})
    assert front.current_run() is None
