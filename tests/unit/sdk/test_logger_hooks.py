"""Loggers that are stand-ins; `tests/integration/test_logger_hooks.py` has the real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest

import runwatch
from runwatch.record import BEGIN
from runwatch.sdk.guard import tally
from runwatch.sdk.hooks.loggers.logged import is_number
from runwatch.sdk.hooks.loggers.tensorboard import Folders
from runwatch.sdk.values.rows import Rows
from runwatch.testing import Story


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> Any:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class TrackioRun:
    def __init__(self) -> None:
        self.config = {"lr": 0.1, "_Created": "now"}
        self.kept: list[Any] = []

    def log(self, metrics: dict[str, Any], step: int | None = None) -> str:
        if not isinstance(metrics, dict):
            raise TypeError("a dict, please")
        self.kept.append((metrics, step))
        return "kept"


def trackio(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A class of its own: hooks change it.
    run_type = type("Run", (TrackioRun,), {"log": TrackioRun.log})
    return stand_in(monkeypatch, "trackio", Run=run_type, init=lambda **_: run_type())


def test_the_logger_keeps_what_it_kept(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    logger = trackio(monkeypatch)
    before = logger.Run.log, logger.init
    runwatch.init("ours", auto=True)
    run = logger.init(project="p")
    assert run.log({"loss": 1.0, "text": "x", "list": [1, 2], "none": None}) == "kept"
    with pytest.raises(TypeError, match="a dict, please"):
        run.log([1])
    run.log({"loss": 2.0})
    assert run.kept[1] == ({"loss": 2.0}, None)
    told = story()
    assert (logger.Run.log, logger.init) == before
    run.log({"loss": 3.0})  # the run has ended
    assert (told.values("loss"), told.steps("loss")) == ([1.0, 2.0], [0, 1])
    assert told.config("user") == {"lr": 0.1}
    assert {n.metric for n in told.numbers} == {"loss"}


def test_a_version_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def log(self: Any, values: dict[str, Any]) -> None: ...

    log.__module__ = "trackio.run"
    run_type = type("Run", (), {"log": log})
    stand_in(monkeypatch, "trackio", Run=run_type, init=None, __version__="99.1")
    runwatch.init("ours", auto=True)
    assert vars(run_type)["log"] is log
    assert tally.counts == {"hook of trackio 99.1": 1}


def test_without_auto_nothing_is_listened_to(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    logger = trackio(monkeypatch)
    runwatch.init("ours")
    logger.init().log({"loss": 1.0})
    assert story().values("loss") == []


def test_wandbs_word_for_it(monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]) -> None:
    logger = trackio(monkeypatch)
    runwatch.init(project="p", name="ours", sync_tensorboard=True)
    logger.init().log({"loss": 1.0})
    assert story().values("loss") == [1.0]


def test_what_the_program_tells_us_itself_is_told_once(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    logger = trackio(monkeypatch)
    ours = runwatch.init("ours", auto=True)
    run = logger.init()
    for step in range(3):
        ours.log({"loss": 1.0}, step=step)
        run.log({"loss": 1.0, "lr": 0.5}, step)
    told = story()
    assert told.steps("loss") == told.steps("lr") == [0, 1, 2]
    assert told.warnings["told by trackio too"] == 3


def test_what_a_trainer_tells_is_not_told_by_its_loggers(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    logger = trackio(monkeypatch)
    ours = runwatch.init("ours", auto=True)
    run = logger.init()
    tell = ours._hooks._tell
    with tell.alone():
        run.log({"train/loss": 1.0}, 0)
    tell.metrics({"loss": 1.0}, 0)
    run.log({"train/loss": 2.0}, 1)
    told = story()
    assert told.values("loss") == [1.0]
    assert told.values("train/loss") == [2.0]


def test_tensorflows_summaries(monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]) -> None:
    written: list[Any] = []

    def scalar(name: str, data: Any, step: Any = None, description: Any = None) -> bool:
        written.append((name, data))
        return True

    class Tensor:
        def __init__(self, value: float, device: str) -> None:
            self.value, self.device = value, device

        def numpy(self) -> Any:
            assert "GPU" not in self.device, "nobody waits for a device"
            return numpy.float32(self.value)

    summary = tensorflow(monkeypatch, scalar)
    runwatch.init("ours", auto=True)
    assert summary.scalar("loss", 0.5, step=3)
    assert summary.scalar("loss", data=Tensor(0.25, "/job:localhost/device:CPU:0"))
    assert summary.scalar("far", Tensor(1.0, "/job:localhost/device:GPU:0"), 4)
    told = story()
    assert (told.values("loss"), told.steps("loss")) == ([0.5, 0.25], [3, 7])
    assert told.values("far") == []
    assert len(written) == 3


def tensorflow(monkeypatch: pytest.MonkeyPatch, scalar: Any, writer: Any = None) -> Any:
    """As it is: what `tf.summary` offers comes from other modules, and from there again when
    `tensorflow.summary` is imported."""

    def create_file_writer_v2(logdir: str, max_queue: Any = None) -> Any:
        return SimpleNamespace() if writer is None else writer(logdir)

    ops = stand_in(
        monkeypatch,
        "tensorflow.python.ops.summary_ops_v2",
        create_file_writer_v2=create_file_writer_v2,
        _summary_state=SimpleNamespace(writer=None),
    )
    stand_in(monkeypatch, "tensorflow.python.summary.tb_summary", scalar=scalar)
    summary = SimpleNamespace(
        scalar=scalar,
        create_file_writer=ops.create_file_writer_v2,
        experimental=SimpleNamespace(get_step=lambda: 7),
    )
    train = SimpleNamespace(Checkpoint=type("Checkpoint", (TensorFlowCheckpoint,), METHODS))
    stand_in(monkeypatch, "tensorflow", summary=summary, train=train)
    return summary


class TensorFlowCheckpoint:
    def _write(self, prefix: str) -> str:
        return prefix

    def save(self, prefix: str) -> str:
        return self._write(f"{prefix}-1")

    def restore(self, path: str) -> str:
        return path


METHODS = {name: vars(TensorFlowCheckpoint)[name] for name in ("_write", "save", "restore")}


class Writer:
    def __init__(self, logdir: str) -> None:
        self.logdir = logdir


def test_writers_of_tensorflow_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    def scalar(name: str, data: Any, step: Any = None) -> bool:
        return sys.modules["tensorflow.python.ops.summary_ops_v2"]._summary_state.writer is not None

    summary = tensorflow(monkeypatch, scalar, Writer)
    runwatch.init("ours", auto=True)
    again: Any = sys.modules["tensorflow.python.summary.tb_summary"]  # `import tensorflow.summary`
    state: Any = sys.modules["tensorflow.python.ops.summary_ops_v2"]
    train, test = summary.create_file_writer("logs/train"), state.create_file_writer_v2("logs/test")
    assert not summary.scalar("loss", 9.0, step=0)  # nobody writes it
    for step in range(2):
        state._summary_state.writer = train
        summary.scalar("loss", 1.0, step=step)
        state._summary_state.writer = test
        again.scalar("loss", 2.0, step=step)
    told = story()
    assert told.values("train/loss") == [1.0, 1.0]
    assert told.values("test/loss") == [2.0, 2.0]
    assert told.values("loss") == []


def test_numbers_of_tensorflows_summaries_count_its_loop(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    summary = tensorflow(monkeypatch, lambda name, data, step=None: True)
    runwatch.init("ours", auto=True)
    for step in range(6):
        summary.scalar("loss", 1.0, step=step)
        if step % 3 == 2:
            summary.scalar("epoch_loss", 1.0, step=step // 3)  # which counts something else
    told = story()
    assert [n.step for n in told.numbers if n.metric == "step_seconds"] == [2, 3, 4, 5]
    assert tally.counts == {}


def test_checkpoints_of_tensorflow(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    tensorflow(monkeypatch, lambda name, data, step=None: True)
    runwatch.init("ours", auto=True)
    checkpoint = sys.modules["tensorflow"].train.Checkpoint()
    assert checkpoint.save("kept") == "kept-1"
    assert checkpoint._write("by a manager") == "by a manager"
    assert checkpoint.restore("kept-1") == "kept-1"
    begun = [edge.name for edge in story().edges if edge.edge == BEGIN]
    assert begun == ["checkpoint_save", "checkpoint_save", "checkpoint_restore"]


def test_which_values_are_numbers() -> None:
    yes = (1, 1.5, True, numpy.float32(2), numpy.array(3), numpy.array([4]), Decimal("1.5"))
    no = ("1", None, b"1", [1], (1,), numpy.array([1, 2]), numpy.datetime64("2026-01-01"), object())
    assert [is_number(value) for value in yes] == [True] * len(yes)
    assert [is_number(value) for value in no] == [False] * len(no)


def test_rows_are_counted_as_wandb_counts_them() -> None:
    rows = Rows()
    asked: tuple[tuple[int | None, bool | None], ...] = (
        (None, None), (None, False), (None, None), (10, None), (None, None), (10, True), (12, None),
    )  # fmt: skip
    assert [rows.at(step, commit) for step, commit in asked] == [0, 1, 1, 10, 10, 10, 12]
    assert rows.row == 12


def test_folders_of_one_run_are_told_apart() -> None:
    folders = Folders()
    assert folders.prefix("runs/a", "loss") == ""
    assert folders.prefix("runs/a", "loss") == ""
    assert folders.prefix("runs/b", "loss") == "b/"
    assert folders.prefix("runs/a/val", "loss") == "val/"
    assert folders.prefix("runs/a/val", "val_loss") == ""
    assert folders.prefix("", "loss") == ""
