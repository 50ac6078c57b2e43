"""The words of google-cloud-mldiagnostics' run interface."""

from __future__ import annotations

from enum import Enum, StrEnum


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
