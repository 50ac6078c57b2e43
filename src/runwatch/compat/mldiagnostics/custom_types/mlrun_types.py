"""The words of google-cloud-mldiagnostics' run interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from runwatch.compat.mldiagnostics.custom_types.regions import validate_region
from runwatch.sdk.values.config import ConfigDict

__all__ = [
    "AcceleratorOrchestrator",
    "ApplicationFramework",
    "ConfigDict",
    "Framework",
    "MLRun",
    "Orchestrator",
    "RlOrchestrator",
    "RunPhase",
    "ServingEngine",
]


class RunPhase(Enum):
    PHASE_UNSPECIFIED = "RUN_PHASE_UNSPECIFIED"
    PHASE_ACTIVE = "ACTIVE"
    PHASE_COMPLETED = "COMPLETED"
    PHASE_FAILED = "FAILED"


class Framework(Enum):
    JAX = "JAX"
    PYTORCH = "PYTORCH"


class ServingEngine(Enum):
    NONE = "NONE"
    VLLM = "VLLM"


class AcceleratorOrchestrator(Enum):
    NONE = "NONE"
    PATHWAYS = "PATHWAYS"


class ApplicationFramework(Enum):
    NONE = "NONE"
    MAXTEXT = "MAXTEXT"
    AXLEARN = "AXLEARN"
    MAXDIFFUSION = "MAXDIFFUSION"


class RlOrchestrator(Enum):
    NONE = "NONE"
    TUNIX = "TUNIX"


class Orchestrator(StrEnum):
    GKE = "GKE"
    SLURM = "SLURM"
    CUSTOM = "CUSTOM"
    NONE = "NONE"


@dataclass
class MLRun:
    """What describes a run.  The one that `machinelearning_run` returns is going on; one that is
    made from this class alone becomes so by `global_manager.register_run`.
    """

    name: str
    run_group: str = ""
    configs: Mapping[str, Any] | None = None
    gcs_path: str | None = None
    location: str = "us-central1"
    project: str = "supercomputer-testing"
    run_phase: RunPhase = RunPhase.PHASE_ACTIVE
    created_at: str | None = None
    workload_details: dict[str, Any] | None = None
    workload_targets: list[dict[str, Any]] | None = None
    orchestrator: str | None = None
    display_name: str = ""
    on_demand_xprof: bool = False
    log_system_metrics: bool = False
    metric_only_run: bool = False
    environment: str = ""
    framework: Framework = Framework.JAX
    serving_engine: ServingEngine = ServingEngine.NONE
    metrics_exporter_config: Mapping[str, Any] | None = None
    accelerator_orchestrator: AcceleratorOrchestrator = AcceleratorOrchestrator.NONE
    application_framework: ApplicationFramework = ApplicationFramework.NONE
    rl_orchestrator: RlOrchestrator = RlOrchestrator.NONE
    control_plane_url: str | None = None
    ml_run_id: str | None = None
    cluster_id: str | None = None
    workload_id: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        validate_region(self.location)
