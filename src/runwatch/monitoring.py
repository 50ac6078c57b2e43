"""Goodput exported while a job runs, as `ml_goodput_measurement.monitoring` has it."""

from runwatch import gcp_metrics, goodput, goodput_utils
from runwatch.goodput.calculator import GoodputCalculator
from runwatch.goodput.cloud import GCPMetrics, ValueType
from runwatch.goodput.kinds import (
    ACTIVITY_EXCLUSION_LIST,
    BadputType,
    GCPOptions,
    IntervalMetricType,
    IntervalWorkloadMetricDetails,
    MetricType,
    MonitoringWindowType,
    UnproductiveTimeDict,
    WorkloadMetricDetails,
)
from runwatch.goodput.monitor import GoodputMonitor

__all__ = [
    "ACTIVITY_EXCLUSION_LIST",
    "BadputType",
    "GCPMetrics",
    "GCPOptions",
    "GoodputCalculator",
    "GoodputMonitor",
    "IntervalMetricType",
    "IntervalWorkloadMetricDetails",
    "MetricType",
    "MonitoringWindowType",
    "UnproductiveTimeDict",
    "ValueType",
    "WorkloadMetricDetails",
    "gcp_metrics",
    "goodput",
    "goodput_utils",
]
