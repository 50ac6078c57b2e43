"""The calls: `mlrun.machinelearning_run` begins a run, `metrics.record` records in it.

The words they take are in `custom_types/`.
"""

from google_cloud_mldiagnostics.api import metrics, mlrun
from google_cloud_mldiagnostics.api.mlrun import machinelearning_run

__all__ = ["machinelearning_run", "metrics", "mlrun"]
