"""Jobs of several ranks in which one goes wrong: the report names it, or says that it cannot tell.

`python benchmarks/hangs.py` runs the same trials and prints what each report said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gloo_jobs import CAUSES, chosen, jobs
from tests.integration.hang_trials import Ground, counted
from tests.integration.processes import free_port
from tests.sampling import sampled

WORLD = 4


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("trials"))
    yield made
    made.close()


@pytest.mark.xdist_group("hang trials")
@pytest.mark.parametrize("cause", sampled(CAUSES, 3))
def test_the_rank_that_went_wrong_is_named(cause: str, ground: Ground) -> None:
    trial = ground.trial(chosen(cause, 2, WORLD, free_port()))
    print(trial.words)
    assert trial.verdict == "right", f"{trial.words}\n{ground.cluster.words()}"


@pytest.mark.soak
def test_a_hundred_trials(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    try:
        trials = list(ground.trials(jobs(CAUSES, each=20, world=8, seed=1000)))
    finally:
        ground.close()
    said = "\n".join(trial.words for trial in trials if trial.verdict != "right")
    verdicts = counted(trials)
    assert verdicts["wrong with confidence"] == 0, said
    assert verdicts["right"] >= 95, said


@pytest.mark.soak
@pytest.mark.timeout(45 * 60)
def test_half_an_hour_of_healthy_runs(tmp_path: Path) -> None:
    ground = Ground(tmp_path, stall_seconds=10.0)
    try:
        found = ground.healthy(30 * 60, seed=3)
    finally:
        ground.close()
    alarms = [(run, incident) for run, incident in found if incident.is_alarm]
    assert alarms == [], "\n".join(f"{run}: {incident.text}" for run, incident in alarms)
