"""SIGKILL of the trainer, of the agent and of the head: every record whose call returned is in the
store exactly once afterwards.  Real processes, real gRPC, real store."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.testing import until
from tests.integration.processes import Cluster, Trainer, end
from tests.sampling import sampled

TRIALS = 2
SOAK_TRIALS = 200
RATES = pytest.mark.parametrize("hertz", sampled([0, 1000], 1), ids=["full-speed", "1kHz"])
HOW_MANY = pytest.mark.parametrize(
    "trials", [TRIALS, pytest.param(SOAK_TRIALS, marks=pytest.mark.soak)]
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


def seconds(trials: int) -> float:
    return 120 + 3 * trials


def at_a_random_moment(trainer: Trainer, hertz: int) -> None:
    """While there is something to ship; at full speed that lasts longer than the recording."""
    if hertz:
        target = trainer.returned + random.randint(1, 1500)
        until(lambda: trainer.returned >= target)
    else:
        time.sleep(random.uniform(0.1, 1.5))


@RATES
@HOW_MANY
@pytest.mark.timeout(1800)
def test_the_trainer_is_killed(cluster: Cluster, hertz: int, trials: int) -> None:
    random.seed(2)
    cluster.start_head()
    cluster.start_agent()
    for trial in range(trials):
        trainer = cluster.start_trainer(hertz=hertz, api="log" if trial % 2 else "record")
        trainer.wait_for(random.randint(1, 300 if hertz else 60_000))
        trainer.kill()
    cluster.wait_until_stored(seconds(trials))
    cluster.check_exactly_once()


@RATES
@HOW_MANY
@pytest.mark.timeout(1800)
def test_the_agent_is_killed(cluster: Cluster, hertz: int, trials: int) -> None:
    random.seed(3)
    cluster.start_head()
    trainer = cluster.start_trainer(
        hertz=hertz, count=10**9 if hertz else min(200_000 * trials, 20_000_000)
    )
    for _ in range(trials):
        cluster.start_agent()
        assert cluster.agent is not None
        at_a_random_moment(trainer, hertz)
        end(cluster.agent, signal.SIGKILL)
    trainer.kill()
    cluster.start_agent()
    cluster.wait_until_stored(seconds(trials))
    cluster.check_exactly_once()


@RATES
@HOW_MANY
@pytest.mark.timeout(1800)
def test_the_head_is_killed(cluster: Cluster, hertz: int, trials: int) -> None:
    random.seed(4)
    cluster.start_agent()
    trainer = cluster.start_trainer(
        hertz=hertz, count=10**9 if hertz else min(200_000 * trials, 20_000_000)
    )
    for _ in range(trials):
        cluster.start_head()
        assert cluster.head is not None
        at_a_random_moment(trainer, hertz)
        end(cluster.head, signal.SIGKILL)
    trainer.kill()
    cluster.start_head()
    cluster.wait_until_stored(seconds(trials))
    cluster.check_exactly_once()


@pytest.mark.parametrize("outage", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_four_ranks_record_while_the_head_is_down(cluster: Cluster, outage: int) -> None:
    cluster.start_head()
    cluster.start_agent()
    trainers = [cluster.start_trainer(hertz=1000) for _ in range(4)]
    for trainer in trainers:
        trainer.wait_for(200)
    assert cluster.head is not None
    end(cluster.head, signal.SIGKILL)
    down_at = [trainer.returned for trainer in trainers]
    for trainer, before in zip(trainers, down_at, strict=True):
        trainer.wait_for(before + outage * 1000, seconds=outage * 4 + 30)
    cluster.start_head()
    for trainer in trainers:
        trainer.wait_for(trainer.returned + 500)
        trainer.kill()
    cluster.wait_until_stored(120)
    cluster.check_exactly_once()
