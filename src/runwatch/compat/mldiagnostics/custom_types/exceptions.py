"""The exceptions that programs written for google-cloud-mldiagnostics catch.

They derive as those programs expect; our own are in `runwatch.errors`.  Only calls that check
what a programmer wrote (`machinelearning_run`) raise them; recording never does.
"""

from __future__ import annotations


class MLDiagnosticError(Exception):
    pass


class MLRunConfigurationError(ValueError):
    pass


class RecordingError(ValueError):
    pass


class NoActiveRunError(Exception):
    pass


class ProfilingError(Exception):
    pass


class ControlPlaneClientNotInitializedError(Exception):
    pass
