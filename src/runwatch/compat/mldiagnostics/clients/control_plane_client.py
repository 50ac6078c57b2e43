"""`ControlPlaneClient`: the runs of Google's control plane, answered from the current run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from runwatch.compat.mldiagnostics.core.described import described, told_phase

logger = logging.getLogger("google_cloud_mldiagnostics.clients.control_plane_client")

Fields = dict[str, Any]


class ControlPlaneClient:
    """Asks nothing of a network.  A run of another name is described by what the call said."""

    def __init__(self, project_id: str, environment: str, location: str = "us-central1") -> None:
        self.project_id = project_id
        self.environment = environment
        self.location = location

    def create_ml_run(
        self,
        name: str,
        display_name: str,
        run_phase: str,
        configs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        artifacts: Mapping[str, str] | None = None,
        run_group: str | None = None,
        labels: Mapping[str, str] | None = None,
        orchestrator: str | None = None,
        workload_details: Mapping[str, Any] | None = None,
        workload_targets: Sequence[Mapping[str, Any]] | None = None,
    ) -> Fields:
        """The run as it would be described; `machinelearning_run` is what begins one."""
        given = {
            "displayName": display_name,
            "runPhase": run_phase,
            "configs": configs,
            "tools": tools,
            "artifacts": artifacts,
            "runSet": run_group,
            "labels": labels,
            "orchestrator": orchestrator,
            "workloadDetails": workload_details,
        }
        return {**described(name), **{key: value for key, value in given.items() if value}}

    def get_ml_run(self, name: str) -> Fields:
        return described(name)

    def update_ml_run(
        self,
        name: str,
        force: bool = False,
        run_phase: str | None = None,
        display_name: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        artifacts: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        configs: Mapping[str, Any] | None = None,
        workload_targets: Sequence[Mapping[str, Any]] | None = None,
        update_mask: str = "*",
    ) -> Fields:
        """COMPLETED or FAILED ends the run of that name; `configs` are recorded in it."""
        told_phase(name, run_phase, configs)
        return described(name)

    def get_operation(self, operation_name: str) -> Fields:
        """There is nothing to wait for."""
        return {"name": operation_name, "done": True}

    def create_profiler_session(
        self,
        ml_run_id: str,
        profiler_session_id: str,
        gsc_file_path: str,
        profiler_target: str,
        start_time: Any,
        end_time: Any,
        session_phase: Any,
    ) -> Fields:
        """As given: a session of `xprof` is in the run's records without it."""
        return {
            "name": f"{ml_run_id}/profilerSessions/{profiler_session_id}",
            "storageFolderUri": f"{gsc_file_path}/{profiler_session_id}",
            "profilerTargets": [profiler_target],
        }

    update_profiler_session = create_profiler_session
