"""The same for elastic jobs, as `ml_goodput_measurement.monitoring_elastic` has it."""

from runwatch.compat.goodput import goodput_elastic, goodput_utils, monitoring
from runwatch.compat.goodput.goodput_utils import GCPOptions
from runwatch.compat.goodput.monitor.monitor_elastic import ElasticGoodputMonitor

__all__ = [
    "ElasticGoodputMonitor",
    "GCPOptions",
    "goodput_elastic",
    "goodput_utils",
    "monitoring",
]
