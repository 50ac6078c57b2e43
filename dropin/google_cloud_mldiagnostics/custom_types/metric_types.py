"""Metric names and units."""

from runwatch.metric_types import METRIC_UNITS, AcceleratorType, MetricType

__all__ = ["METRIC_UNITS", "AcceleratorType", "MetricType"]
