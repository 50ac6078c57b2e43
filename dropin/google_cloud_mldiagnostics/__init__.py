"""google-cloud-mldiagnostics' names, provided by Runwatch.

A table and nothing else: each name is an object of `runwatch.compat.mldiagnostics`.
`api/` holds the calls, `custom_types/` the words, `core/` the current run and
its profiles, `commands/` the two commands; `clients/`, `exporters/` and `utils/` what the original
is made of.  How they differ is in docs/differences.md.
"""

import runwatch_dropin_start  # noqa: F401  (google.cloud.logging without an account)

from google_cloud_mldiagnostics.api import metrics
from google_cloud_mldiagnostics.api.mlrun import machinelearning_run
from google_cloud_mldiagnostics.core.xprof import Xprof as xprof
from google_cloud_mldiagnostics.custom_types import metric_types
from runwatch.compat.submodules import submodules

__all__ = ["machinelearning_run", "metric_types", "metrics", "xprof"]

__getattr__, __dir__ = submodules(__name__, "clients", "exporters", "utils")
