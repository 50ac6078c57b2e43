"""Who started the workload."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runwatch.compat.mldiagnostics.custom_types.mlrun_types import Orchestrator
from runwatch.compat.mldiagnostics.utils.gcp import get_instance_attribute, get_instance_metadata

_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def detect_orchestrator() -> Orchestrator:
    """As the original sees it: GKE and SLURM only on machines of Google's cloud."""
    if get_instance_metadata("id") is None:
        return Orchestrator.CUSTOM
    in_kubernetes = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) or _TOKEN.exists()
    if in_kubernetes and get_instance_attribute("cluster-name") is not None:
        return Orchestrator.GKE
    known = {name for name in os.environ if name.startswith("SLURM_") and os.environ[name]}
    began = {"SLURM_NODELIST", "SLURM_JOB_START_TIME"} & known
    if {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID"} <= known and began:
        return Orchestrator.SLURM
    return Orchestrator.CUSTOM
