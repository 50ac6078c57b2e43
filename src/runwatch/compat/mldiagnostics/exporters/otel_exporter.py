"""The original's exporters to an OpenTelemetry collector: here, too, the run is where things go.

`runwatch export` and the head's own exports send a run's metrics on by OTLP, each point of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from runwatch.compat.mldiagnostics.api.metrics import record_metrics
from runwatch.compat.mldiagnostics.exporters.base_exporter import (
    BaseLogsExporter,
    BaseMetricsExporter,
    LogEntry,
    MetricPoint,
)

logger = logging.getLogger("google_cloud_mldiagnostics.exporters.otel_exporter")


class OTelMetricsExporter(BaseMetricsExporter):
    def __init__(self, resource_attributes: Mapping[str, Any]) -> None:
        super().__init__(resource_attributes)

    @classmethod
    def is_available(cls) -> bool:
        """Always: no library is needed for it."""
        return True

    def export(self, batch: Sequence[MetricPoint]) -> None:
        record_metrics(
            {"metric_name": p.name, "value": p.value, "step": p.step, "labels": p.labels}
            for p in batch
        )


class OTelLogsExporter(BaseLogsExporter):
    def __init__(self, resource_attributes: Mapping[str, Any]) -> None:
        super().__init__(resource_attributes)

    @classmethod
    def is_available(cls) -> bool:
        """Always: no library is needed for it."""
        return True

    def export(self, batch: Sequence[LogEntry]) -> None:
        record_metrics(
            {"metric_name": (e.labels or {}).get("namespace", "sdk_logs"), "value": e.body,
             "step": e.step, "labels": e.labels}
            for e in batch
        )  # fmt: skip
