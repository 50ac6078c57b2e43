"""`initialize_mlrun`, which the original's `machinelearning_run` calls, and addresses of pages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from runwatch.compat.mldiagnostics.api.mlrun import DEFAULT_REGION, machinelearning_run
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    AcceleratorOrchestrator,
    ApplicationFramework,
    Framework,
    MLRun,
    RlOrchestrator,
    ServingEngine,
)

logger = logging.getLogger("google_cloud_mldiagnostics.core.create_mlrun")


def initialize_mlrun(
    name: str,
    environment: str,
    on_demand_xprof: bool,
    log_system_metrics: bool = False,
    metric_only_run: bool = False,
    run_group: str | None = None,
    configs: Mapping[str, Any] | None = None,
    gcs_path: str | None = None,
    project: str | None = None,
    region: str | None = None,
    metrics_record_interval_sec: float = 10.0,
    framework: Framework = Framework.JAX,
    serving_engine: ServingEngine = ServingEngine.NONE,
    run_workload_id: str | None = None,
    metrics_exporter_config: Mapping[str, Any] | None = None,
    accelerator_orchestrator: AcceleratorOrchestrator = AcceleratorOrchestrator.NONE,
    application_framework: ApplicationFramework = ApplicationFramework.NONE,
    rl_orchestrator: RlOrchestrator = RlOrchestrator.NONE,
    base_url: str | None = None,
    cluster_id: str | None = None,
    ml_run_id: str | None = None,
    workload_id: str | None = None,
    namespace: str | None = None,
) -> MLRun:
    """As `machinelearning_run`, with the arguments in another order."""
    return machinelearning_run(
        name=name,
        run_group=run_group or "",
        configs=configs,
        gcs_path=gcs_path,
        base_url=base_url,
        cluster_id=cluster_id,
        project=project,
        region=region or DEFAULT_REGION,
        metrics_record_interval_sec=metrics_record_interval_sec,
        on_demand_xprof=on_demand_xprof,
        log_system_metrics=log_system_metrics,
        environment=environment,
        framework=framework,
        serving_engine=serving_engine,
        run_workload_id=run_workload_id or workload_id,
        metric_only_run=metric_only_run,
        metrics_exporter_config=metrics_exporter_config,
        accelerator_orchestrator=accelerator_orchestrator,
        application_framework=application_framework,
        rl_orchestrator=rl_orchestrator,
    )


def create_diagnostics_url(region: str, project: str, name: str) -> str:
    """Where the original's console would show such a run."""
    details = "https://console.cloud.google.com/cluster-director/diagnostics/details"
    return f"{details}/{region}/{name}?project={project}"


def create_gke_url(region: str, project: str, name: str) -> str:
    runs = "https://console.cloud.google.com/kubernetes/aiml/run"
    return f"{runs}/{region}/{name}?project={project}"


def create_xprof_url(ml_diagnostics_url: str) -> str:
    return f"{ml_diagnostics_url}&pageState=(%22nav%22:(%22section%22:%22profiles%22))"
