"""`LoggingClient`: what the original writes to Cloud Logging is recorded in the current run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from runwatch.compat.mldiagnostics.api.metrics import record_metrics
from runwatch.compat.mldiagnostics.custom_types.regions import validate_region
from runwatch.sdk.front import current_run

logger = logging.getLogger("google_cloud_mldiagnostics.clients.logging_client")


class LoggingClient:
    """Needs no credentials: nothing leaves the machine but what Runwatch ships itself."""

    def __init__(
        self,
        project_id: str,
        log_name: str = "ml_diagnostics_metric",
        credentials_path: str | None = None,
        user_credentials: object = None,
    ) -> None:
        self.project_id = project_id
        self.log_name = log_name

    def write_metric(
        self,
        metric_name: str,
        value: Any,
        run_id: str,
        location: str,
        step: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        item = {"metric_name": metric_name, "value": value, "step": step, "labels": labels}
        self.write_metrics([item], run_id, location)

    def write_metrics(
        self, metrics: Iterable[Mapping[str, Any]], run_id: str, location: str
    ) -> None:
        """Into the current run, with the time of this call; `run_id` is a label if it is another's.

        Raises ValueError for a location that is no region.
        """
        validate_region(location)
        run = current_run()
        if run is None or run_id in (run.id, run.name):
            record_metrics(metrics)
            return
        record_metrics([{**m, "labels": {**(m.get("labels") or {}), "run_id": run_id}}
                        for m in metrics])  # fmt: skip


class NoOpLoggingClient(LoggingClient):
    def __init__(self) -> None:
        super().__init__("")

    def write_metrics(
        self, metrics: Iterable[Mapping[str, Any]], run_id: str, location: str
    ) -> None:
        """Only looks at the location."""
        validate_region(location)
