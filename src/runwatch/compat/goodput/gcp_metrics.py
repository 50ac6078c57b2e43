"""Figures to Google Cloud Monitoring, as `ml_goodput_measurement.gcp_metrics` has them."""

from runwatch.compat.goodput.monitor.cloud import GCPMetrics, ValueType

__all__ = ["GCPMetrics", "ValueType"]
