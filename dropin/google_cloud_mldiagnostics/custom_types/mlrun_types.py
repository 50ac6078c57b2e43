"""The run object and its enums."""

from runwatch.sdk.config import ConfigDict
from runwatch.sdk.mlrun import MLRun
from runwatch.sdk.mlrun_types import (
    AcceleratorOrchestrator,
    ApplicationFramework,
    Framework,
    Orchestrator,
    RlOrchestrator,
    RunPhase,
    ServingEngine,
)

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
