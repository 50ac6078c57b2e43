"""The original's exporters to Cloud Logging: what they are given is recorded in the current run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from runwatch.compat.mldiagnostics.clients.logging_client import LoggingClient
from runwatch.compat.mldiagnostics.exporters.base_exporter import (
    BaseLogsExporter,
    BaseMetricsExporter,
    LogEntry,
    MetricPoint,
)

logger = logging.getLogger("google_cloud_mldiagnostics.exporters.cloud_logging")


class _ToRun:
    """Where a batch goes: a client, and the run and region it names."""

    def __init__(self, resource_attributes: Mapping[str, Any], client: LoggingClient | None):
        for key in ("project_id", "run_id"):
            if not resource_attributes.get(key):
                raise ValueError(f"resource_attributes has no {key!r}: {dict(resource_attributes)}")
        self._run_id: str = resource_attributes["run_id"]
        self._location: str = resource_attributes.get("location", "us-central1")
        self._client = client or LoggingClient(resource_attributes["project_id"])

    def write(self, items: Sequence[Mapping[str, Any]]) -> None:
        if items:
            self._client.write_metrics(items, self._run_id, self._location)


class CloudLoggingMetricsExporter(BaseMetricsExporter):
    def __init__(
        self, resource_attributes: Mapping[str, Any], client: LoggingClient | None = None
    ) -> None:
        super().__init__(resource_attributes)
        self._to_run = _ToRun(resource_attributes, client)

    def export(self, batch: Sequence[MetricPoint]) -> None:
        self._to_run.write([{"metric_name": point.name, **asdict(point)} for point in batch])


class CloudLoggingLogsExporter(BaseLogsExporter):
    """A label `namespace` is the name under which an entry is recorded."""

    def __init__(
        self, resource_attributes: Mapping[str, Any], client: LoggingClient | None = None
    ) -> None:
        super().__init__(resource_attributes)
        self._to_run = _ToRun(resource_attributes, client)

    def export(self, batch: Sequence[LogEntry]) -> None:
        self._to_run.write(
            [
                {
                    "metric_name": (entry.labels or {}).get("namespace", "sdk_logs"),
                    "value": entry.body,
                    "step": entry.step,
                    "labels": entry.labels,
                }
                for entry in batch
            ]
        )
