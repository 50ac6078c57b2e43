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
from runwatch.sdk.guard import tally
from runwatch.sdk.identity import GKE_IDENTIFIER, GKE_METADATA, Identity, identify


class IdentityError(ValueError):
    """A variable of an orchestrator lacks something."""


class NoJsonError(IdentityError):
    """A variable of an orchestrator is not what an orchestrator writes."""


def identify_workload(
    name: str, run_workload_id: str | None = None, environment: Mapping[str, str] = os.environ
) -> Identity:
    """Raises IdentityError for a variable that lacks something, as the original does.  One that no
    orchestrator can have written is ignored, as the original does outside Google's cloud.
    """
    identity = identify(name, environment=environment)
    if run_workload_id:
        return identity._replace(run=workload_id(run_workload_id), orchestrator="CUSTOM")
    if identity.orchestrator == "CUSTOM":  # RUNWATCH_RUN_ID
        return identity
    if workload := environment.get("RUN_WORKLOAD_ID"):
        return identity._replace(run=workload_id(workload), orchestrator="CUSTOM")
    if identity.orchestrator == "GKE":
        try:
            return identity._replace(run=gke_id(environment))
        except NoJsonError as error:
            tally.count("GKE variable", f"{error}: it is ignored")
            return identity._replace(orchestrator="NONE")
    if identity.orchestrator == "SLURM":
        return identity._replace(run=slurm_id(environment))
    return identity


def workload_id(workload: str) -> RunId:
    return RunId(hashlib.sha256(workload.encode("utf-8", "surrogatepass")).hexdigest())


def gke_id(environment: Mapping[str, str]) -> RunId:
    """The same on every pod of a workload, and the same as other tools compute."""
    identifier = _json(environment, GKE_IDENTIFIER)
    metadata = _json(environment, GKE_METADATA)
    return workload_id("_".join(gke_parts(gke_details(identifier, metadata))))


def gke_details(identifier: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The two variables in the words of `host_utils.get_workload_details`."""
    return {
        "id": identifier.get("metadata.name", ""),
        "kind": identifier.get("metadata.kind", ""),
        "cluster": identifier.get("clustername", ""),
        "namespace": identifier.get("namespace", ""),
        "creation-timestamp": metadata.get("creation-timestamp") or metadata.get("timestamp", ""),
    }


def gke_parts(details: Mapping[str, Any]) -> list[str]:
    """Cluster, namespace, kind, name and time of the workload."""
    keys = ("cluster", "namespace", "kind", "id")
    cluster, *others = [_required(details, key, GKE_IDENTIFIER) for key in keys]
    stamp = _compact(str(details.get("creation-timestamp") or ""), GKE_METADATA)
    return [cluster.rpartition("/")[2], *others, stamp]


def slurm_id(environment: Mapping[str, str]) -> RunId:
    parts = [environment.get("SLURM_CLUSTER_NAME") or "slurm", environment["SLURM_JOB_ID"]]
    start = environment.get("SLURM_JOB_START_TIME", "")
    if start.isascii() and start.isdigit() and len(start) < 12:
        parts.append(datetime.fromtimestamp(int(start), UTC).strftime("%Y%m%d-%H%M%S"))
    return workload_id("_".join(parts))


def _json(environment: Mapping[str, str], variable: str) -> dict[str, Any]:
    try:
        value = json.loads(environment.get(variable) or "{}")
    except ValueError as error:
        raise NoJsonError(f"{variable} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NoJsonError(f"{variable} is not a JSON object")
    return value


def _required(fields: Mapping[str, Any], key: str, variable: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise IdentityError(f"{variable} does not name the workload's {key}")
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
