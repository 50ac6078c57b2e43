"""Names and units of the metrics every training program has."""

from runwatch.sdk.metric_types import METRIC_UNITS, AcceleratorType, MetricType

__all__ = ["METRIC_UNITS", "AcceleratorType", "MetricType"]
