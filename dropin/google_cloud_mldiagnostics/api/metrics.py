"""Recording metrics."""

from runwatch.compat.mldiagnostics.api.metrics import record, record_metrics

__all__ = ["record", "record_metrics"]
