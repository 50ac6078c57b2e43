"""A run in the words of the original's control plane, and its phase set in those words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runwatch.compat.mldiagnostics.custom_types.mlrun_types import RunPhase
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import attempt
from runwatch.sdk.run import Run
from runwatch.sdk.values.plain import config_values

_ENDS: Final = {
    RunPhase.PHASE_COMPLETED.value: "completed",
    RunPhase.PHASE_FAILED.value: "failed",
}


def described(name: str) -> dict[str, Any]:
    """The current run's fields, if that is its name; else the name alone."""
    run = named(name)
    return {"name": name} if run is None else fields(run)


def fields(run: Run) -> dict[str, Any]:
    def of(attribute: str) -> Any:
        return getattr(run, attribute, None)

    phase = of("run_phase")
    told = {
        "name": run.id,
        "displayName": of("display_name") or run.name,
        "runSet": run.group,
        "configs": dict(of("configs") or {"userConfigs": dict(run.config)}),
        "artifacts": {"gcsPath": of("gcs_path")} if of("gcs_path") else None,
        "runPhase": getattr(phase, "value", None),
        "orchestrator": of("orchestrator"),
        "workloadDetails": of("workload_details"),
        "createTime": of("created_at"),
    }
    return {key: value for key, value in told.items() if value}


def named(name: str) -> Run | None:
    """The current run, if it goes by that name, by itself or as a resource's path."""
    run = current_run()
    known = () if run is None else (run.id, run.name, getattr(run, "display_name", run.name))
    return run if name.rpartition("/")[2] in known or name in known else None


def told_phase(
    name: str, phase: RunPhase | str | None, configs: Mapping[str, Any] | None = None
) -> None:
    run = named(name)
    if run is None:
        return
    if configs:
        nothing: dict[str, Any] = {}
        run.config.update(attempt("read the configs", nothing, lambda: config_values(configs)))
    word = phase.value if isinstance(phase, RunPhase) else phase
    if word in _ENDS:
        run.finish(_ENDS[word])
