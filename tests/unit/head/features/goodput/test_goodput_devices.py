"""Devices that worked while their program told nothing: the run did not stand still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.head_history import Producer, exited
from tests.unit.head.features.goodput.test_goodput_figures import World

TENSOR = "gpu_tensor_activity_percent"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    # Steps of a second up to 60; then nothing for 40 s; then steps again.
    run = Producer(made.store, "j-a", run="a", name="a")
    steps = [(n, float(n), n + 1.0) for n in range(60)]
    steps += [(60, 60.0, 101.0)] + [(n + 61, 101.0 + n, 102.0 + n) for n in range(60)]
    run.write(events=[("run_start", 0, {})], steps=steps)
    made.agent.write(events=[exited("j-a", 161, code=0)], scope=0)
    yield made
    made.store.close()


def spent(world: World) -> dict[str, float]:
    found = world.get("/runs/a/goodput")["spent"]
    return {each["name"]: each["ns"] / 1e9 for each in found if each["ns"]}


def activity(world: World, *during: float) -> None:
    points: list[tuple[str, float, None, float]] = [
        (TENSOR, float(t), None, during[0] if 60 <= t < 101 else 40.0) for t in range(161)
    ]
    world.device("a", 0, points)


def test_without_devices_a_long_pause_is_a_stall(world: World) -> None:
    assert spent(world)["stall"] == pytest.approx(40, abs=0.1)


def test_where_tensor_cores_went_on_it_was_work(world: World) -> None:
    activity(world, 38.0)
    found = spent(world)
    assert "stall" not in found
    assert sum(found.values()) == pytest.approx(161)
    assert found["productive"] == pytest.approx(161, abs=1)
    buckets = world.get("/runs/a/goodput", buckets=16, intervals=100)
    assert all(part["goodput"] in (None, 1.0) for part in buckets["over_time"][1:])
    assert "stall" not in buckets["intervals"]["name"]
    why = world.get("/runs/a/goodput/explain", time=world.clock.wall_ns() - int(7110e9))
    assert why["name"] == "productive" and "its devices were seen at work" in " ".join(why["why"])


def test_where_they_stood_still_it_is_a_stall(world: World) -> None:
    """As in a collective that waits for a rank that is gone."""
    activity(world, 0.0)
    assert spent(world)["stall"] == pytest.approx(40, abs=0.1)
