from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import runwatch
from runwatch.compat.mldiagnostics import metrics
from runwatch.compat.mldiagnostics.api.mlrun import LiveRun, machinelearning_run, normal_path
from runwatch.compat.mldiagnostics.custom_types.exceptions import MLRunConfigurationError
from runwatch.compat.mldiagnostics.custom_types.metric_types import MetricType
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    AcceleratorOrchestrator,
    ApplicationFramework,
    Framework,
    Orchestrator,
    RlOrchestrator,
    RunPhase,
    ServingEngine,
)
from runwatch.testing import Story, read_stories

Tell = Callable[[], Story]

ATTRIBUTES = (
    "name", "run_group", "configs", "gcs_path", "location", "project", "run_phase", "created_at",
    "workload_details", "workload_targets", "orchestrator", "display_name", "on_demand_xprof",
    "log_system_metrics", "metric_only_run", "environment", "framework", "serving_engine",
    "metrics_exporter_config", "accelerator_orchestrator", "application_framework",
    "rl_orchestrator", "control_plane_url", "ml_run_id", "cluster_id", "workload_id", "namespace",
)  # fmt: skip


def test_every_parameter_is_taken_and_every_attribute_there(story: Tell) -> None:
    run = machinelearning_run(
        name="my run",
        run_group="group",
        configs={"epochs": 100, "nested": {"a": 1}, 7: None},  # type: ignore[dict-item]
        gcs_path="gs://bucket//folder/",
        base_url="http://127.0.0.1:1",
        cluster_id="c",
        project="p",
        region="europe-west4",
        metrics_record_interval_sec=1.0,
        on_demand_xprof=True,
        log_system_metrics=True,
        environment="staging",
        framework=Framework.PYTORCH,
        serving_engine=ServingEngine.VLLM,
        run_workload_id="w",
        metric_only_run=True,
        metrics_exporter_config={"mode": ["otel"]},
        accelerator_orchestrator=AcceleratorOrchestrator.PATHWAYS,
        application_framework="maxtext",
        rl_orchestrator="TUNIX",
    )
    assert len(ATTRIBUTES) == 27
    assert [name for name in ATTRIBUTES if not hasattr(run, name)] == []
    assert run.display_name == "my run"
    assert run.name == run.ml_run_id == hashlib.sha256(b"w").hexdigest()
    assert run.gcs_path == "gs://bucket/folder"
    assert run.application_framework is ApplicationFramework.MAXTEXT
    assert run.rl_orchestrator is RlOrchestrator.TUNIX
    assert run.orchestrator is Orchestrator.CUSTOM
    assert run.run_phase.value == "ACTIVE"
    assert run.configs.softwareConfigs["framework"] == "PYTORCH"
    assert run.configs.userConfigs == {"epochs": "100", "nested": "{'a': 1}", "7": "None"}
    groups = (run.configs.softwareConfigs, run.configs.hardwareConfigs)
    assert all(isinstance(value, str) for group in groups for value in group.values())
    told = story()
    assert told.config("user") == {"epochs": 100, "nested": {"a": 1}, "7": None}
    assert told.bodies("run_start")[0]["gcs_path"] == "gs://bucket/folder"
    assert told.scopes[0].group == "group"
    assert run.run_phase is RunPhase.PHASE_COMPLETED


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"name": ""}, MLRunConfigurationError),
        ({"name": None}, MLRunConfigurationError),
        ({"environment": "test"}, MLRunConfigurationError),
        ({"application_framework": "unknown"}, MLRunConfigurationError),
        ({"rl_orchestrator": "unknown"}, MLRunConfigurationError),
        ({"region": "us-central1-a"}, ValueError),
        ({"region": "nowhere"}, ValueError),
    ],
)
def test_what_a_programmer_wrote_wrongly_raises(
    wrong: dict[str, Any], error: type[Exception], place: Path
) -> None:
    assert issubclass(MLRunConfigurationError, ValueError)
    with pytest.raises(error):
        machinelearning_run(**{"name": "n", **wrong})
    assert not place.exists()


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("gs://b//x///y/", "gs://b/x/y"),
        ("gs://b", "gs://b"),
        ("/a//b/", "/a/b"),
        ("/", "/"),
        ("", None),
        (None, None),
    ],
)
def test_paths(path: str | None, normal: str | None) -> None:
    assert normal_path(path) == normal


def test_a_malformed_workload_variable_raises_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKE_DIAGON_IDENTIFIER", json.dumps({"namespace": "n"}))
    with pytest.raises(ValueError, match="GKE_DIAGON"):
        machinelearning_run(name="n")


def test_configs_can_be_updated_and_the_change_is_recorded(story: Tell) -> None:
    run = machinelearning_run(name="n", configs={"lr": 1})
    run.configs.update({"lr": 2})
    run.configs.extra = "x"
    assert story().config("user") == {"lr": 2, "extra": "x"}


def test_system_metrics_only_on_request(place: Path) -> None:
    for on_request in (False, True):
        with machinelearning_run(name="n", log_system_metrics=on_request) as run:
            for _ in range(2):
                metrics.record(MetricType.HOST_CPU_UTILIZATION, 50.0)
                metrics.record(MetricType.LOSS, 1.0)
            run.log(gpu_utilization=3.0)  # one's own call is always taken
    without, with_them = read_stories(place)
    assert without.values("host_cpu_utilization") == []
    assert with_them.values("host_cpu_utilization") == [50.0, 50.0]
    assert without.values("gpu_utilization") == [3.0]
    assert without.values("loss") == with_them.values("loss") == [1.0, 1.0]


def test_it_is_a_run_like_any_other(story: Tell) -> None:
    run = machinelearning_run(name="n")
    assert isinstance(run, LiveRun)
    assert runwatch.current_run() is run
    assert machinelearning_run(name="n") is run
    for step, _ in run.steps(range(1), start=3):
        run.log(loss=float(step))
    assert story().values("loss") == [3.0]


def test_a_failed_run_is_in_phase_failed() -> None:
    run = machinelearning_run(name="n")
    with pytest.raises(RuntimeError), run:
        raise RuntimeError
    assert run.run_phase is RunPhase.PHASE_FAILED
