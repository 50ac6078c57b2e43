"""The words: metric names and units, the run's enums, the exceptions.

The calls that take them are in `api/`.
"""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(__name__, "exceptions", "metric_types", "mlrun_types")
