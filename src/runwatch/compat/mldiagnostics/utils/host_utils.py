"""This process among the others, and the workload it belongs to."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runwatch.clock import system_clock
from runwatch.compat.mldiagnostics.core.run_ids import (
    gke_details,
    gke_parts,
    slurm_id,
    workload_id,
)
from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    Framework,
    Orchestrator,
    ServingEngine,
)
from runwatch.compat.mldiagnostics.utils import gcp
from runwatch.journal.liveness import this_host
from runwatch.sdk.identity import GKE_IDENTIFIER, GKE_METADATA, Identity, identify
from runwatch.sdk.profiling.profiling import timestamp

logger = logging.getLogger("google_cloud_mldiagnostics.utils.host_utils")

Details = dict[str, Any]

# ── this process ──────────────────────────────────────────────────────────────────────────────


def get_hostname() -> str:
    return os.environ.get("HOSTNAME") or this_host()


def get_instance_id() -> str:
    """Of a machine of Google's cloud; elsewhere a RuntimeError."""
    found = gcp.get_instance_metadata("id")
    if not found:
        raise RuntimeError("this machine has no metadata service, and so no instance id")
    return found


def get_process_index(
    framework: Framework = Framework.JAX, serving_engine: ServingEngine = ServingEngine.NONE
) -> int:
    """The rank, from the framework if it knows, else from the launcher."""
    return _identity().rank


def is_master_host(
    framework: Framework = Framework.JAX, serving_engine: ServingEngine = ServingEngine.NONE
) -> bool:
    return get_process_index(framework, serving_engine) == 0


def get_local_process_index(framework: Framework = Framework.JAX) -> int:
    return _identity().local_rank


def get_local_world_size(framework: Framework = Framework.JAX) -> int:
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(size) if size.isascii() and size.isdigit() else 1


def is_local_master_process(framework: Framework = Framework.JAX) -> bool:
    return get_local_process_index(framework) == 0


def get_accelerator_type(
    framework: Framework | None = Framework.JAX, serving_engine: ServingEngine = ServingEngine.NONE
) -> AcceleratorType:
    """By the environment and the device files: no device is woken to find out."""
    tpu = ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_TYPE", "TPU_LIBRARY_PATH", "JAX_FORCE_TPU_INIT")
    gpu = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION")
    platform = os.environ.get("PJRT_DEVICE", "").upper()
    devices = Path("/dev")
    if {*tpu} & {*os.environ} or platform == "TPU":
        return AcceleratorType.TPU
    if {*gpu} & {*os.environ} or platform in ("GPU", "CUDA"):
        return AcceleratorType.GPU
    if any(devices.glob("accel*")):
        return AcceleratorType.TPU
    if any(devices.glob("nvidia*")):
        return AcceleratorType.GPU
    return AcceleratorType.TPU if gcp.get_tpu_accelerator_type() else AcceleratorType.UNKNOWN


def effective_session_id(session_id: str | None = None) -> str:
    """A profile's: as given, or the local time."""
    return session_id or timestamp(system_clock.wall_ns())


def _identity() -> Identity:
    return identify("run")


# ── the workload ──────────────────────────────────────────────────────────────────────────────


def get_workload_details(
    orchestrator: str = "GKE", run_workload_id: str | None = None
) -> Details | None:
    """None where the orchestrator's variables are not set."""
    if orchestrator == Orchestrator.SLURM:
        return _of_slurm()
    return _of_host(run_workload_id) if orchestrator == Orchestrator.CUSTOM else _of_gke()


def get_workload_targets(
    orchestrator: str = "GKE", workload_details: Mapping[str, Any] | None = None
) -> list[Details] | None:
    """This host; None on GKE, where the operator knows them."""
    if orchestrator not in (Orchestrator.SLURM, Orchestrator.CUSTOM):
        return None
    if orchestrator == Orchestrator.CUSTOM and not workload_details:
        return None
    host = get_hostname()
    return [
        {
            "display_name": host,
            "instance_id": gcp.get_instance_metadata("id"),
            "hostname": host,
            "zone": gcp.get_instance_zone(),
            "state": "RUNNING",
        }
    ]


def get_identifier(
    orchestrator: str = "GKE", workload_details: Mapping[str, Any] | None = None
) -> str:
    """The run's id.  Raises ValueError if the details lack something.

    1.0.0 was called with the run's name in place of the orchestrator, and gave an id to be read.
    """
    details = workload_details or {}
    if orchestrator == Orchestrator.SLURM:
        return _slurm_identifier(details)
    if orchestrator == Orchestrator.CUSTOM:
        return _custom_identifier(details)
    parts = gke_parts(details)
    if orchestrator == Orchestrator.GKE:
        return workload_id("_".join(parts))
    return "-".join((orchestrator, *parts)).replace("_", "-").lower()


def sanitize_identifier(identifier: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", identifier.lower()).strip("-")


def _of_gke() -> Details | None:
    identifier, metadata = _read(GKE_IDENTIFIER), _read(GKE_METADATA)
    if not identifier and not metadata:
        return None
    pairs = str(metadata.get("associated-labels") or "").split(",")
    labels = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {
        **gke_details(identifier, metadata),
        "parent_workload": metadata.get("parent-workload"),
        "labels": {key.strip(): value.strip() for key, value in labels.items()} or None,
    }


def _of_slurm() -> Details | None:
    job, cluster = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_CLUSTER_NAME")
    if not job or not cluster:
        return None
    start = os.environ.get("SLURM_JOB_START_TIME", "")
    if start.isascii() and start.isdigit():
        start = datetime.fromtimestamp(int(start), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    project, zone = gcp.get_project_id(), gcp.get_instance_zone()
    return {
        "job_id": job,
        "cluster": f"projects/{project}/locations/{zone}/clusters/{cluster}",
        "display_name": os.environ.get("SLURM_JOB_NAME") or f"slurm-job-{job}",
        "submit_time": start or None,
    }


def _of_host(run_workload_id: str | None) -> Details:
    given = run_workload_id or os.environ.get("RUN_WORKLOAD_ID")
    instance = gcp.get_instance_metadata("id") or "unknown-instance-id"
    created = datetime.fromtimestamp(system_clock.wall_ns() / 1e9, UTC)
    return {
        "id": given or instance,
        "display_name": given or get_hostname(),
        "create_time": created.isoformat(),
        "_is_workload_id_set": bool(given),
    }


def _slurm_identifier(details: Mapping[str, Any]) -> str:
    missing = [key for key in ("job_id", "cluster", "submit_time") if not details.get(key)]
    if missing:
        raise ValueError(f"the Slurm job's details lack {', '.join(missing)}")
    began = datetime.fromisoformat(details["submit_time"])
    known = {
        "SLURM_JOB_ID": details["job_id"],
        "SLURM_CLUSTER_NAME": details["cluster"].rpartition("/")[2],
        "SLURM_JOB_START_TIME": str(int(began.timestamp())),
    }
    return slurm_id(known)


def _custom_identifier(details: Mapping[str, Any]) -> str:
    missing = [key for key in ("id", "create_time") if not details.get(key)]
    if missing:
        raise ValueError(f"the workload's details lack {', '.join(missing)}")
    if details.get("_is_workload_id_set"):
        return workload_id(str(details["id"]))
    return workload_id(f"{details['id']}_{details['create_time']}")


def _read(variable: str) -> Details:
    try:
        value = json.loads(os.environ.get(variable) or "{}")
    except ValueError as error:
        logger.warning("%s is not JSON, and is ignored: %s", variable, error)
        return {}
    return value if isinstance(value, dict) else {}
