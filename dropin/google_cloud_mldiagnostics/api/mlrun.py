"""Beginning a run."""

from runwatch.compat.mldiagnostics import machinelearning_run
from runwatch.compat.mldiagnostics.api.mlrun import logger, normalize_gcs_path

__all__ = ["logger", "machinelearning_run", "normalize_gcs_path"]
