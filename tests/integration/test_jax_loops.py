"""Loops of JAX that nobody changed: annotated for the profiler, or numbered by what they save."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from runwatch.record import END
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program

pytestmark = pytest.mark.skipif(
    find_spec("jax") is None or find_spec("orbax") is None, reason="JAX or Orbax is not installed"
)

PROGRAM = """
import os
import jax, jax.numpy as jnp, orbax.checkpoint as ocp
import runwatch

@jax.jit
def update(weights, batch):
    loss, slope = jax.value_and_grad(lambda w: ((batch @ w - 1) ** 2).mean())(weights)
    return weights - 0.01 * slope, loss

batch = jnp.ones((4, 3))
annotation = jax.profiler.StepTraceAnnotation
plain = dict(vars(annotation)), vars(ocp.CheckpointManager)["should_save"]

with runwatch.init("annotated", auto=True):
    weights = jnp.ones(3)
    for step in range(5, 11):
        with annotation("train", step_num=step):
            weights, loss = update(weights, batch)
        with annotation("eval", step_num=step):
            update(weights, batch)
    try:
        with annotation("train", step_num=11):
            raise ValueError
    except ValueError:
        pass

def numbered(numbers, folder):
    options = ocp.CheckpointManagerOptions(save_interval_steps=100, create=True)
    place = os.path.join(os.environ["WORK"], folder)
    with ocp.CheckpointManager(place, options=options) as manager:
        weights = jnp.ones(3)
        for step in numbers:
            weights, loss = update(weights, batch)
            manager.save(step, args=ocp.args.StandardSave({"weights": weights}))

with runwatch.init("numbered", auto=True):
    numbered(range(3, 9), "every")
with runwatch.init("now and then", auto=True):
    numbered(range(10, 100, 10), "some")
with runwatch.init("its own steps", auto=True) as run:
    for step in range(4):
        with run.step(step), annotation("train", step_num=step):
            update(weights, batch)

assert (dict(vars(annotation)), vars(ocp.CheckpointManager)["should_save"]) == plain
"""


def steps(story: Story) -> list[int | None]:
    return [edge.step for edge in story.edges if edge.name == "step" and edge.edge == END]


def test_steps_of_jax_loops(tmp_path: Path) -> None:
    done = run_program(PROGRAM, tmp_path / "records", WORK=str(tmp_path), JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    annotated, numbered, now_and_then, its_own = read_stories(tmp_path / "records")
    assert steps(annotated) == [5, 6, 7, 8, 9, 10, 11]
    assert steps(numbered) == [5, 6, 7, 8]  # two numbers in a row may be chance
    assert steps(now_and_then) == []
    assert steps(its_own) == [0, 1, 2, 3]
    for story in (annotated, numbered, now_and_then, its_own):
        assert story.warnings == {}
