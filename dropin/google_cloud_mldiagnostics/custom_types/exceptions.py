"""What `machinelearning_run` raises for wrong arguments, and names programs catch."""

from runwatch.compat.mldiagnostics.custom_types.exceptions import (
    ControlPlaneClientNotInitializedError,
    MLDiagnosticError,
    MLRunConfigurationError,
    NoActiveRunError,
    ProfilingError,
    RecordingError,
)

__all__ = [
    "ControlPlaneClientNotInitializedError",
    "MLDiagnosticError",
    "MLRunConfigurationError",
    "NoActiveRunError",
    "ProfilingError",
    "RecordingError",
]
