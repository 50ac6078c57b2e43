"""How busy this machine is: its CPUs and memory in percent, its TPUs in percent of each chip."""

from __future__ import annotations

import logging
import time
from typing import Final

from runwatch.agent.collectors.host import HostCollector
from runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric import (
    get_hbm_utilization,
    get_tpu_duty_cycle,
    get_tpu_tensorcore_utilization,
)

__all__ = [
    "get_hbm_utilization",
    "get_host_cpu_utilization",
    "get_host_memory_utilization",
    "get_tpu_duty_cycle",
    "get_tpu_tensorcore_utilization",
    "logger",
]

logger = logging.getLogger("google_cloud_mldiagnostics.utils.metric_utils")

_CPU_SECONDS: Final = 0.1


def get_host_cpu_utilization() -> float | None:
    """Over a tenth of a second."""
    host = HostCollector()
    _now(host)
    time.sleep(_CPU_SECONDS)
    return _now(host).get("host_cpu_utilization_percent")


def get_host_memory_utilization() -> float | None:
    """Of what this process may have: in a container with a limit, of that."""
    now = _now(HostCollector())
    used, limit = now.get("host_memory_used_bytes"), now.get("host_memory_limit_bytes")
    return None if used is None or not limit else 100.0 * used / limit


def _now(host: HostCollector) -> dict[str, float]:
    return {sample.metric: sample.value for sample in host.collect()}
