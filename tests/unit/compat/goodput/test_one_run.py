"""A process has one run of a name, however many libraries ask for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

import runwatch
from runwatch.compat.goodput.goodput import GoodputRecorder
from runwatch.compat.goodput.log import backend
from runwatch.compat.goodput.log.backend import JournalLogger
from runwatch.compat.mldiagnostics import machinelearning_run
from runwatch.compat.mldiagnostics.api.mlrun import LiveRun
from runwatch.sdk import front
from runwatch.sdk.run import Run
from runwatch.testing import read_stories

Library = Callable[[], object]


def recorder() -> None:
    GoodputRecorder("job", "log", True).record_job_start_time()


def diagnostics() -> LiveRun:
    return machinelearning_run("job", run_group="team", configs={"lr": 1})


def plain() -> Run:
    return runwatch.init("job", config={"depth": 2})


def wandb_like() -> Run:
    return runwatch.init(name="job", project="team")


LIBRARIES: list[Library] = [recorder, diagnostics, plain, wandb_like]


@pytest.mark.parametrize("second", LIBRARIES)
@pytest.mark.parametrize("first", LIBRARIES)
def test_two_libraries_in_either_order_have_one_run(
    place: Path, first: Library, second: Library
) -> None:
    first()
    second()
    recorder()
    runwatch.log(loss=1.0)
    runwatch.finish()
    backend.finish_runs()
    (story,) = read_stories(place)
    assert {scope.run for scope in story.scopes} == {"job"}
    asked = {first, second} & {diagnostics, wandb_like}
    assert story.scopes[-1].group == ("team" if asked else "")
    assert story.values("loss") == ([] if {first, second} == {recorder} else [1.0])
    assert len(story.values("goodput.job_start_time")) == 1 + (recorder in (first, second)) + (
        first is second is recorder
    )
    assert story.end["status"] == "completed"


def test_the_run_that_is_taken_over_has_all_that_is_expected_of_it(place: Path) -> None:
    before = plain()
    run = diagnostics()
    assert run is before is runwatch.current_run()
    assert isinstance(run, LiveRun)
    assert (run.display_name, run.name, run.run_group, run.group) == ("job", "job", "team", "team")
    assert run.configs["userConfigs"] == {"depth": "2", "lr": "1"}
    assert run.config == {"depth": 2, "lr": 1}
    likewise = wandb_like()
    assert likewise is run
    likewise.define_metric("loss")  # type: ignore[attr-defined]
    assert isinstance(run, LiveRun) and run.display_name == "job"
    runwatch.finish()
    (story,) = read_stories(place)
    assert story.bodies("run_start")[-1]["group"] == "team"


def test_a_run_of_another_name_is_another_run(place: Path) -> None:
    recorder()
    machinelearning_run("other")
    runwatch.finish()
    backend.finish_runs()
    assert sorted(story.scopes[0].run for story in read_stories(place)) == ["job", "other"]


def test_where_the_workload_is_the_run_the_process_goes_over_to_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rank 0 has a recorder: the other ranks are in the workload's run from the beginning."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    log = GoodputRecorder("job", "log", True)
    log.record_job_start_time()
    log.record_tpu_init_start_time()
    run = diagnostics()
    assert run.id == hashlib.sha256(b"slurm_17").hexdigest()
    log.record_tpu_init_end_time()
    log.record_step_start_time(0)
    log.record_step_start_time(1)
    runwatch.finish()
    first, second = read_stories(place)
    assert first.bodies("joined") == [{"run": run.id}]
    assert [scope.run for scope in second.scopes] == [run.id]
    told = [number.metric.removeprefix("goodput.") for number in second.numbers]
    assert told == ["job_start_time", "tpu_init_start_time", "tpu_init_end_time",
                    "step_start_time", "step_start_time"]  # fmt: skip
    assert second.values("goodput.job_start_time") == first.values("goodput.job_start_time")
    entries, _ = JournalLogger("job", "log").read_cloud_logging_entries()
    assert len(entries) == 5  # none of them twice


def test_an_id_that_the_program_gives_comes_before_that_of_a_recorder(place: Path) -> None:
    recorder()
    with runwatch.init("job", id="experiment-7") as run:
        assert run.id == "experiment-7"
    first, _ = read_stories(place)
    assert first.bodies("joined") == [{"run": "experiment-7"}]


@pytest.mark.parametrize(
    "order",
    [(recorder, lambda: runwatch.init("train")), (lambda: runwatch.init("train"), recorder)],
)
def test_one_id_for_whatever_the_program_calls_it(
    place: Path, order: tuple[Library, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_RUN_ID", "experiment-7")
    for library in order:
        library()
    runwatch.finish()
    backend.finish_runs()
    (story,) = read_stories(place)
    assert {scope.run for scope in story.scopes} == {"experiment-7"}
    assert len(story.values("goodput.job_start_time")) == 1


# ── runs that hooks begin ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("library", [plain, diagnostics, wandb_like])
def test_a_run_that_hooks_began_makes_room_for_the_program_s(place: Path, library: Library) -> None:
    """What it logs elsewhere comes first, and then it names its run."""
    begun = front.begin_for_hooks()
    assert runwatch.current_run() is begun is front.begin_for_hooks()
    library()
    current = runwatch.current_run()
    assert current is not None and current.id == "job"
    runwatch.finish()
    first, second = read_stories(place)
    assert first.bodies("joined") == [{"run": "job"}] and second.bodies("joined") == []


def test_a_run_with_steps_that_hooks_began_stands(place: Path) -> None:
    with front.begin_for_hooks().step(0):
        pass
    plain()
    runwatch.finish()
    assert [story.bodies("joined") for story in read_stories(place)] == [[], []]


def test_hooks_take_the_run_that_a_recorder_began(place: Path) -> None:
    recorder()
    assert front.begin_for_hooks().id == "job"
    runwatch.finish()
    assert len(read_stories(place)) == 1
