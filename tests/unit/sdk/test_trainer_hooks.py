"""Hooks of frameworks that are not installed here, or not in the version that a test needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from runwatch.record import BEGIN
from runwatch.sdk import front
from runwatch.sdk.guard import tally
from runwatch.sdk.hooks import AUTO_HOOKS
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.torch import ranks
from runwatch.sdk.hooks.trainers import deepspeed, lightning, transformers
from runwatch.sdk.hooks.versions import KNOWN, is_known, numbers
from runwatch.sdk.identity import identify
from runwatch.sdk.run import Run
from runwatch.testing import FakeClock, Story

Tell = Callable[[], Story]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tell(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Teller:
    monkeypatch.setenv("RUNWATCH_HOOKS", "off")
    return Teller(front.begin(identify("clocked"), lambda who: Run(who, clock=clock), {}, Run))


def install_module(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> Any:
    module = ModuleType(name)
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# ── versions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "known"),
    [("4.20.0", True), ("5.23.0", True), ("5.0rc1", True), ("4.19.9", False), ("6.0.0", False),
     ("", False), ("main", False)],
)  # fmt: skip
def test_a_version_that_is_not_known_is_said_once(
    version: str, known: bool, tell: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_module(monkeypatch, "transformers", __version__=version)
    for _ in range(2):
        assert is_known(tell, "transformers") is known
    assert len(tally.counts) == (0 if known else 1)


def test_a_hook_for_a_version_that_is_not_known_is_not_set(
    tell: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_module(monkeypatch, "transformers", __version__="99.0")
    install_module(monkeypatch, "deepspeed", __version__="99.0")
    install_module(monkeypatch, "lightning", __version__="99.0")
    install_module(monkeypatch, "lightning.pytorch.trainer.trainer")
    for hook in (transformers, deepspeed, lightning):
        hook.install(tell)
    assert list(tally.counts) == [
        f"hook of {name} 99.0" for name in ("transformers", "deepspeed", "lightning")
    ]
    assert tell.at_the_end == []


def test_numbers_of_versions() -> None:
    assert numbers("2.13.0a4+cpu") == (2, 13, 0)
    assert numbers("unknown") == ()
    assert all(low < high for low, high in KNOWN.values())


# ── DeepSpeed, as its documentation describes its engine ──────────────────────────────────────


class DeepSpeedEngine:
    """Steps at every batch, and updates at every second one."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.micro_steps = self.global_steps = 0

    def step(self, lr_kwargs: object = None) -> None:
        self.clock.advance(1)
        self.micro_steps += 1
        self.global_steps = self.micro_steps // 2

    def save_checkpoint(self, save_dir: str, tag: str | None = None) -> bool:
        self.clock.advance(3)
        return True

    def load_checkpoint(self, load_dir: str) -> tuple[str, dict[str, int]]:
        return load_dir, {}


class Optimizer:
    """Any one; hooks ask it for nothing."""


class MonitorMaster:
    def __init__(self) -> None:
        self.written: list[Any] = []

    def write_events(self, event_list: list[tuple[str, float, int]]) -> None:
        self.written += event_list


class PipelineEngine(DeepSpeedEngine):
    """Takes its batches itself, and never calls `step`."""

    def train_batch(self) -> float:
        self.clock.advance(2)
        self.global_steps += 1
        return 0.5

    def eval_batch(self) -> float:
        self.clock.advance(1)
        return 0.25


@pytest.fixture
def installed(tell: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    install_module(monkeypatch, "deepspeed", __version__="0.18.2")
    for name in ("step", "save_checkpoint", "load_checkpoint"):  # pytest puts them back
        monkeypatch.setattr(DeepSpeedEngine, name, vars(DeepSpeedEngine)[name])
    for name in ("train_batch", "eval_batch"):
        monkeypatch.setattr(PipelineEngine, name, vars(PipelineEngine)[name])
    monkeypatch.setattr(MonitorMaster, "write_events", MonitorMaster.write_events)
    install_module(monkeypatch, "deepspeed.runtime.engine", DeepSpeedEngine=DeepSpeedEngine)
    install_module(monkeypatch, "deepspeed.runtime.pipe.engine", PipelineEngine=PipelineEngine)
    install_module(monkeypatch, "deepspeed.monitor.monitor", MonitorMaster=MonitorMaster)
    deepspeed.install(tell)


def test_deepspeed_is_looked_at_when_all_of_it_is_there() -> None:
    """Its version is not yet known when its engine has just been imported."""
    assert ("deepspeed", "trainers.deepspeed") in AUTO_HOOKS


@pytest.mark.usefixtures("installed")
def test_deepspeed(tell: Teller, clock: FakeClock, story: Tell) -> None:
    engine, monitor = DeepSpeedEngine(clock), MonitorMaster()
    for _ in range(6):
        engine.step()
    monitor.write_events([("Train/Samples/train_loss", 0.5, 48), ("Train/Samples/lr", 0.1, 48)])
    assert engine.save_checkpoint("here", tag="latest") is True
    assert engine.load_checkpoint("here") == ("here", {})
    assert len(monitor.written) == 2
    told = story()
    steps = [n for n in told.numbers if n.metric == "step_seconds"]
    assert [n.step for n in steps] == [1, 2, 3]
    assert [n.value for n in steps[1:]] == [2.0, 2.0]
    assert told.values("Train/Samples/train_loss") == [0.5]
    assert told.steps("Train/Samples/train_loss") == [3]
    begun = [edge.name for edge in told.edges if edge.edge == BEGIN and edge.name != "step"]
    assert begun == ["checkpoint_save", "checkpoint_restore"]
    assert tally.counts == {}


@pytest.mark.usefixtures("installed")
def test_the_optimizer_inside_an_engine_counts_nothing(
    tell: Teller, clock: FakeClock, story: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, optimizer = DeepSpeedEngine(clock), Optimizer()
    advance = clock.advance

    def advance_and_update(seconds: float) -> None:
        advance(seconds)
        if tell.loop is not None:
            tell.loop.updated(optimizer)

    monkeypatch.setattr(clock, "advance", advance_and_update)
    for _ in range(4):
        engine.step()
    assert tell.run is not None and tell.run._exhausted is None  # nobody knows whether it is over
    told = story()
    assert [n.step for n in told.numbers if n.metric == "step_seconds"] == [1, 2]


@pytest.mark.usefixtures("installed")
def test_one_of_several_engines_counts(clock: FakeClock, story: Tell) -> None:
    policy, critic = DeepSpeedEngine(clock), DeepSpeedEngine(clock)
    policy.micro_steps, policy.global_steps = 200, 100  # it goes on from a checkpoint
    for _ in range(4):
        policy.step()
        critic.step()
    told = story()
    assert [n.step for n in told.numbers if n.metric == "step_seconds"] == [101, 102]


@pytest.mark.usefixtures("installed")
def test_a_pipeline_of_deepspeed(clock: FakeClock, story: Tell) -> None:
    engine = PipelineEngine(clock)
    assert [engine.train_batch(), engine.train_batch(), engine.eval_batch()] == [0.5, 0.5, 0.25]
    told = story()
    assert [n.step for n in told.numbers if n.metric == "step_seconds"] == [1, 2]
    assert [e.name for e in told.edges if e.edge == BEGIN and e.name != "step"] == ["evaluation"]


# ── ranks that meet ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rank", ["3", None])
def test_a_rank_that_meets_others_is_part_of_a_run(
    rank: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    if rank is not None:
        monkeypatch.setenv("RANK", rank)

    def init_process_group(backend: str) -> str:
        begun.append("meet")
        return backend

    package = install_module(
        monkeypatch, "torch.distributed", init_process_group=init_process_group
    )
    inner = install_module(
        monkeypatch, "torch.distributed.distributed_c10d", init_process_group=init_process_group
    )
    ranks.install(Teller(begin=lambda: begun.append("run")))
    assert package.init_process_group is inner.init_process_group
    assert package.init_process_group("gloo") == "gloo"
    assert begun[0] == ("meet" if rank is None else "run") and "run" in begun
