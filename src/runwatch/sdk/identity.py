"""Who this process is: which run, which rank, which host, which attempt.

Everything is read from the environment, from /proc, or from a framework that already knows.
Nothing is imported, no device is touched, no name is looked up on the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final, NamedTuple

from runwatch.record import RunId
from runwatch.sdk.guard import attempt, tally, text_of

MAX_ID: Final = 64
MAX_DISPLAY: Final = 200

GKE_IDENTIFIER: Final = "GKE_DIAGON_IDENTIFIER"
GKE_METADATA: Final = "GKE_DIAGON_METADATA"

# The first that holds a number wins.  RANK comes before the node's number: torchrun sets both.
_RANK: Final = (
    "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID",
    "NODE_RANK", "GROUP_RANK", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX",
)  # fmt: skip
_WORLD_SIZE: Final = (
    "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JAX_NUM_PROCESSES", "NNODES",
)  # fmt: skip
_LOCAL_RANK: Final = (
    "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
)  # fmt: skip


class IdentityError(ValueError):
    """A variable of an orchestrator is set but malformed."""


class Identity(NamedTuple):
    run: RunId
    name: str
    """For people: any text, cleaned."""
    rank: int
    local_rank: int
    world_size: int
    attempt_key: str
    orchestrator: str
    """GKE, SLURM, CUSTOM or NONE: where the id comes from."""


def identify(
    name: object,
    *,
    run_id: str | None = None,
    environment: Mapping[str, str] = os.environ,
    modules: Mapping[str, ModuleType] = sys.modules,
    strict: bool = False,
) -> Identity:
    """`strict`: raise for a malformed variable of an orchestrator instead of using the name."""
    shown = display_name(name)
    try:
        run, orchestrator = _run_id(text_of(name), run_id, environment)
    except IdentityError as error:
        if strict:
            raise
        tally.count("run id", f"{error}; the run's id comes from its name instead")
        run, orchestrator = slug(text_of(name)), "NONE"
    framework = attempt("ask the framework for the rank", None, lambda: _framework_rank(modules))
    rank, world_size = framework or _environment_rank(environment)
    local = _number(environment, _LOCAL_RANK)
    return Identity(
        run,
        shown,
        rank,
        0 if local is None else local,
        world_size,
        attempt_key(environment),
        orchestrator,
    )


def display_name(name: object) -> str:
    original = text_of(name)
    shown = "".join(c if c.isprintable() else " " for c in original[: 10 * MAX_DISPLAY]).strip()
    shown = shown.encode("utf-8", "replace").decode()[:MAX_DISPLAY] or "run"
    if shown != original:
        tally.count("run name", f"the run's name was cleaned for display: {shown!r}")
    return shown


def slug(name: str) -> RunId:
    """A name as an id: safe as a path, and different for different names."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", name.lower()[:1000]).strip("-.")[:MAX_ID]
    if safe and safe == name:
        return RunId(safe)
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return RunId(f"{safe[: MAX_ID - 9].rstrip('-.') or 'run'}-{mark}")


def _run_id(name: str, explicit: str | None, environment: Mapping[str, str]) -> tuple[RunId, str]:
    chosen = explicit or environment.get("RUNWATCH_RUN_ID")
    if chosen:
        return slug(text_of(chosen)), "CUSTOM"
    if workload := environment.get("RUN_WORKLOAD_ID"):
        return workload_id(workload), "CUSTOM"
    if environment.get(GKE_IDENTIFIER):
        return gke_id(environment), "GKE"
    if job := environment.get("SLURM_JOB_ID"):
        return slurm_id(job, environment), "SLURM"
    torchrun = environment.get("TORCHELASTIC_RUN_ID", "")
    if torchrun not in ("", "none") and not _is_uuid(torchrun):
        return slug(torchrun), "CUSTOM"
    return slug(name), "NONE"


def workload_id(workload: str) -> RunId:
    return RunId(hashlib.sha256(workload.encode("utf-8", "surrogatepass")).hexdigest())


def gke_id(environment: Mapping[str, str]) -> RunId:
    """The same on every pod of a workload, and the same as other tools compute."""
    identifier = _json(environment, GKE_IDENTIFIER)
    metadata = _json(environment, GKE_METADATA)
    cluster = _required(identifier, "clustername", GKE_IDENTIFIER).rsplit("/", 1)[-1]
    namespace = _required(identifier, "namespace", GKE_IDENTIFIER)
    kind = _required(identifier, "metadata.kind", GKE_IDENTIFIER)
    workload = _required(identifier, "metadata.name", GKE_IDENTIFIER)
    created = metadata.get("creation-timestamp") or metadata.get("timestamp")
    stamp = _compact(str(created or ""), GKE_METADATA)
    return workload_id(f"{cluster}_{namespace}_{kind}_{workload}_{stamp}")


def slurm_id(job: str, environment: Mapping[str, str]) -> RunId:
    parts = [environment.get("SLURM_CLUSTER_NAME") or "slurm", job]
    start = environment.get("SLURM_JOB_START_TIME", "")
    if start.isascii() and start.isdigit() and len(start) < 12:
        parts.append(datetime.fromtimestamp(int(start), UTC).strftime("%Y%m%d-%H%M%S"))
    return workload_id("_".join(parts))


def attempt_key(environment: Mapping[str, str]) -> str:
    """The same for processes that were started together, different after a restart."""
    if key := environment.get("RUNWATCH_ATTEMPT"):
        return key[:MAX_DISPLAY]
    if job := environment.get("SLURM_JOB_ID"):
        return f"slurm-{job}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    if torchrun := environment.get("TORCHELASTIC_RUN_ID"):
        return f"torchrun-{torchrun}.{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if restart := environment.get("JOBSET_RESTART_ATTEMPT"):
        return f"jobset-{restart}"
    return ""


def queued_at_ns(environment: Mapping[str, str] = os.environ) -> int | None:
    """When the job was submitted; None if nothing says so.

    `RUNWATCH_QUEUED_AT` is for scripts that submit jobs (seconds since the epoch, or RFC 3339).  On
    GKE it is when the workload was created.  Slurm tells a job when it started, not when it was
    submitted.
    """
    if moment := environment.get("RUNWATCH_QUEUED_AT", "").strip():
        return _moment_ns(moment)
    if not environment.get(GKE_IDENTIFIER):
        return None
    try:
        metadata = _json(environment, GKE_METADATA)
    except IdentityError:  # reported when the run was identified
        return None
    created = metadata.get("creation-timestamp") or metadata.get("timestamp")
    return _moment_ns(created) if isinstance(created, str) else None


def _moment_ns(moment: str) -> int | None:
    try:
        if re.fullmatch(r"[0-9]{1,11}(\.[0-9]+)?", moment):
            return round(float(moment) * 1_000_000) * 1_000
        time = datetime.fromisoformat(moment)
        if time.tzinfo is None:
            raise ValueError("it has no offset, like Z or +02:00")
        return round(time.timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError) as error:
        tally.count("queue time", f"cannot read the queue time {moment[:80]!r}: {error}")
        return None


# ── rank ──────────────────────────────────────────────────────────────────────────────────────


def _framework_rank(modules: Mapping[str, ModuleType]) -> tuple[int, int] | None:
    """The rank from an initialised torch.distributed or JAX, without waking a device."""
    distributed: Any = modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    state: Any = getattr(modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and getattr(state, "client", None) is not None:
        return int(state.process_id), int(state.num_processes)
    return None


def _environment_rank(environment: Mapping[str, str]) -> tuple[int, int]:
    rank = _number(environment, _RANK) or 0
    return rank, max(_number(environment, _WORLD_SIZE) or 1, rank + 1)


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environment.get(name, "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


# ── small readers ─────────────────────────────────────────────────────────────────────────────


def _is_uuid(value: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", value) is not None


def _json(environment: Mapping[str, str], variable: str) -> dict[str, Any]:
    try:
        value = json.loads(environment.get(variable, ""))
    except ValueError as error:
        raise IdentityError(f"{variable} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise IdentityError(f"{variable} is not a JSON object")
    return value


def _required(fields: Mapping[str, Any], key: str, variable: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise IdentityError(f"{variable} has no {key!r}")
    return value


def _compact(stamp: str, variable: str) -> str:
    if not stamp.endswith("Z"):
        raise IdentityError(
            f"{variable} needs a 'creation-timestamp' that ends in Z, not {stamp!r}"
        )
    try:
        return datetime.fromisoformat(stamp).strftime("%Y%m%d-%H%M%S")
    except ValueError as error:
        raise IdentityError(f"{variable} has a 'creation-timestamp' {stamp!r}: {error}") from error
