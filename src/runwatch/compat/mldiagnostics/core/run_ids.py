"""The ids of runs as google-cloud-mldiagnostics computes them.

Elsewhere in Runwatch a run's name is its identity.  The original takes the workload's: an id that
somebody gave it, its place in a GKE cluster, or its Slurm job.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from runwatch.record import RunId
from runwatch.sdk.identity import GKE_IDENTIFIER, GKE_METADATA, Identity, identify


class IdentityError(ValueError):
    """A variable of an orchestrator is set but malformed."""


def identify_workload(
    name: str, run_workload_id: str | None = None, environment: Mapping[str, str] = os.environ
) -> Identity:
    """Raises IdentityError for a malformed variable, as the original does."""
    identity = identify(name, environment=environment)
    if run_workload_id:
        return identity._replace(run=workload_id(run_workload_id), orchestrator="CUSTOM")
    if identity.orchestrator == "CUSTOM":  # RUNWATCH_RUN_ID
        return identity
    if workload := environment.get("RUN_WORKLOAD_ID"):
        return identity._replace(run=workload_id(workload), orchestrator="CUSTOM")
    if identity.orchestrator == "GKE":
        return identity._replace(run=gke_id(environment))
    if identity.orchestrator == "SLURM":
        return identity._replace(run=slurm_id(environment))
    return identity


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


def slurm_id(environment: Mapping[str, str]) -> RunId:
    parts = [environment.get("SLURM_CLUSTER_NAME") or "slurm", environment["SLURM_JOB_ID"]]
    start = environment.get("SLURM_JOB_START_TIME", "")
    if start.isascii() and start.isdigit() and len(start) < 12:
        parts.append(datetime.fromtimestamp(int(start), UTC).strftime("%Y%m%d-%H%M%S"))
    return workload_id("_".join(parts))


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
