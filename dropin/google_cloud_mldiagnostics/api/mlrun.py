"""Beginning a run."""

from runwatch.compat.mldiagnostics import machinelearning_run

__all__ = ["machinelearning_run"]
