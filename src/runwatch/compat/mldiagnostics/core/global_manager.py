"""The current run.  Runwatch keeps it; this only answers for it."""

from __future__ import annotations

import logging
from typing import Any

from runwatch.compat.mldiagnostics.api.mlrun import machinelearning_run
from runwatch.compat.mldiagnostics.clients.control_plane_client import ControlPlaneClient
from runwatch.compat.mldiagnostics.clients.logging_client import LoggingClient
from runwatch.compat.mldiagnostics.core.described import fields
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import MLRun
from runwatch.compat.mldiagnostics.exporters.base_exporter import (
    BaseLogsExporter,
    BaseMetricsExporter,
)
from runwatch.compat.mldiagnostics.exporters.otel_exporter import (
    OTelLogsExporter,
    OTelMetricsExporter,
)
from runwatch.sdk.front import current_run
from runwatch.sdk.run import Run

logger = logging.getLogger("google_cloud_mldiagnostics.core.global_manager")


class GlobalRunManager:
    """There is one, however often it is made."""

    def __new__(cls, *args: object, **kwargs: object) -> GlobalRunManager:
        return _manager

    @classmethod
    def get_instance(cls) -> GlobalRunManager:
        return _manager

    def initialize(self, mlrun: MLRun) -> None:
        """Make it the current run.  A description becomes a run that is going on."""
        if isinstance(mlrun, Run):
            return
        machinelearning_run(
            name=mlrun.display_name or mlrun.name,
            run_group=mlrun.run_group,
            configs=mlrun.configs,
            gcs_path=mlrun.gcs_path,
            base_url=mlrun.control_plane_url,
            cluster_id=mlrun.cluster_id,
            project=mlrun.project,
            region=mlrun.location,
            on_demand_xprof=mlrun.on_demand_xprof,
            log_system_metrics=mlrun.log_system_metrics,
            environment=mlrun.environment or "prod",
            framework=mlrun.framework,
            serving_engine=mlrun.serving_engine,
            run_workload_id=mlrun.workload_id,
            metric_only_run=mlrun.metric_only_run,
            metrics_exporter_config=mlrun.metrics_exporter_config,
            accelerator_orchestrator=mlrun.accelerator_orchestrator,
            application_framework=mlrun.application_framework,
            rl_orchestrator=mlrun.rl_orchestrator,
        )

    @property
    def run(self) -> Any:
        """The run that is going on, or None."""
        return current_run()

    @property
    def run_id(self) -> str | None:
        run = current_run()
        return None if run is None else run.id

    @property
    def run_group(self) -> str | None:
        run = current_run()
        return None if run is None else run.group

    @property
    def location(self) -> str | None:
        return getattr(current_run(), "location", None)

    @property
    def project_id(self) -> str | None:
        return getattr(current_run(), "project", None)

    @property
    def last_updated_run(self) -> dict[str, Any] | None:
        """The run in the words of the original's control plane."""
        run = current_run()
        return None if run is None else fields(run)

    @property
    def logging_client(self) -> LoggingClient | None:
        return None if current_run() is None else LoggingClient(self.project_id or "")

    @property
    def control_plane_client(self) -> ControlPlaneClient | None:
        if current_run() is None:
            return None
        return ControlPlaneClient(self.project_id or "", "prod", self.location or "us-central1")

    @property
    def metrics_exporters(self) -> list[BaseMetricsExporter]:
        """One, which records in the run."""
        return [] if current_run() is None else [OTelMetricsExporter(self._attributes())]

    @property
    def logs_exporters(self) -> list[BaseLogsExporter]:
        """One, which records in the run."""
        return [] if current_run() is None else [OTelLogsExporter(self._attributes())]

    def _attributes(self) -> dict[str, Any]:
        return {"project_id": self.project_id, "run_id": self.run_id, "location": self.location}

    def create_or_update_profiler_session(
        self,
        create_new_session: bool,
        session_id: str,
        start_time: Any,
        end_time: Any,
        session_phase: Any,
        context_msg: str,
    ) -> None:
        """Nothing to do: a session of `xprof` is in the run's records."""

    def has_active_run(self) -> bool:
        return current_run() is not None

    def is_initialized(self) -> bool:
        return current_run() is not None

    def clear(self) -> None:
        """End the run that is going on."""
        run = current_run()
        if run is not None:
            run.finish()


_manager = object.__new__(GlobalRunManager)


def get_global_run_manager() -> GlobalRunManager:
    return _manager


def initialize_with_mlrun(mlrun: MLRun) -> GlobalRunManager:
    _manager.initialize(mlrun)
    return _manager


def register_run(mlrun: MLRun) -> None:
    _manager.initialize(mlrun)


def get_current_run() -> Any:
    return _manager.run


def get_current_run_id() -> str | None:
    return _manager.run_id


def get_logging_client() -> LoggingClient | None:
    return _manager.logging_client


def get_last_updated_run() -> dict[str, Any] | None:
    return _manager.last_updated_run
