"""Goodput exported while a job runs, as `ml_goodput_measurement.monitoring` has it."""

import logging

from runwatch.compat.goodput import gcp_metrics, goodput, goodput_utils
from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.gcp_metrics import GCPMetrics, ValueType
from runwatch.compat.goodput.goodput_utils import (
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
from runwatch.compat.goodput.monitor.monitor import GoodputMonitor

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
    "logger",
]

logger = logging.getLogger("ml_goodput_measurement.src.monitoring")
