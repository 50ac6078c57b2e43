"""Recording metrics."""

from runwatch.metrics import record, record_metrics

__all__ = ["record", "record_metrics"]
