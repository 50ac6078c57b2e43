"""Metric names and units."""

from runwatch.compat.mldiagnostics.custom_types.metric_types import (
    METRIC_UNITS,
    AcceleratorType,
    MetricType,
)

__all__ = ["METRIC_UNITS", "AcceleratorType", "MetricType"]
