"""`runwatch.metrics.record`: one value of one metric, from anywhere in the program."""

from runwatch.sdk.metrics import record, record_metrics

__all__ = ["record", "record_metrics"]
