"""The run object and its enums."""

from runwatch.compat.mldiagnostics.api.mlrun import MLRun
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    AcceleratorOrchestrator,
    ApplicationFramework,
    Framework,
    Orchestrator,
    RlOrchestrator,
    RunPhase,
    ServingEngine,
)
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
