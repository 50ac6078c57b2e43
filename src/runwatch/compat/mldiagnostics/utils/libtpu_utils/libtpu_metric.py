"""What libtpu says of this host's chips; None where there is no libtpu, or it does not answer."""

from __future__ import annotations

import logging
import os
from importlib import import_module, metadata

from runwatch.sdk.guard import attempt

logger = logging.getLogger("google_cloud_mldiagnostics.utils.libtpu_utils.libtpu_metric")


def get_libtpu_version() -> str:
    for name in ("libtpu", "libtpu-nightly"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "n/a"


def get_tpu_duty_cycle() -> list[float] | None:
    return _asked("duty_cycle_pct")


def get_tpu_tensorcore_utilization() -> list[float] | None:
    return _asked("tensorcore_util")


def get_hbm_utilization() -> list[float] | None:
    used, total = _asked("hbm_capacity_usage"), _asked("hbm_capacity_total")
    if used is None or total is None:
        return None
    return [100.0 * mine / all_of_it for mine, all_of_it in zip(used, total, strict=False)
            if all_of_it > 0]  # fmt: skip


def _asked(question: str) -> list[float] | None:
    if os.environ.get("MLRUN_SKIP_LIBTPU", "").lower() == "true":
        return None
    try:
        library = import_module("libtpu.sdk.tpumonitoring")
    except ImportError:
        return None
    return attempt(
        "ask libtpu", None, lambda: [float(chip) for chip in library.get_metric(question).data()]
    )
