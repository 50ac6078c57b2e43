"""Translates messages of gswarm-profiler's clients into our names and units.

The clients send shares from 0 to 1, and KiB/s under names that say Gbps.  They also swap the two
directions of PCIe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

IMPORTED: Final = "imported:"
"""Prefix of `boot` for a journal that was imported from such a file: no process writes it."""
MOST_EXTRAS: Final = 64
_KIBI: Final = 1024.0
_EARLIEST, _LATEST = 946_684_800.0, 7_258_118_400.0

Reading = tuple[str, int, str, str, float]
"""Metric, GPU index (-1: the host), GPU name, unit, value."""


def sampled_ns(seconds: float) -> int | None:
    """The sample's time; None if the message has none (gswarm 0.2.1 sends none)."""
    if math.isfinite(seconds) and _EARLIEST < seconds < _LATEST:
        return round(seconds * 1e6) * 1000
    return None


def says_percent(update: Any) -> bool:
    """Known clients send 0 to 1.  One that ever sends more sends percent."""
    return any(gpu.gpu_util > 1.0 or gpu.mem_util > 1.0 for gpu in update.gpus_metrics)


def readings(update: Any, *, percent: bool, bandwidth: bool, nvlink: bool) -> Iterator[Reading]:
    """`bandwidth`, `nvlink`: whether the client measures these, so that a 0 is a real 0."""
    factor = 1.0 if percent else 100.0
    for gpu in update.gpus_metrics:
        yield from _of_gpu(gpu, factor, bandwidth, nvlink)
    if update.HasField("system_metrics"):
        system = update.system_metrics
        yield "host_memory_used_percent", -1, "", "%", system.dram_util
        yield "host_disk_used_percent", -1, "", "%", system.disk_util


def _of_gpu(gpu: Any, factor: float, bandwidth: bool, nvlink: bool) -> Iterator[Reading]:
    index, name = max(gpu.physical_idx, -1), gpu.name
    yield "gpu_utilization_percent", index, name, "%", gpu.gpu_util * factor
    yield "gpu_memory_used_percent", index, name, "%", gpu.mem_util * factor
    rates = {
        # The clients read (sent, received) as (received, sent).
        "gpu_pcie_tx_bytes_per_second": (gpu.dram_bw_gbps_rx, bandwidth),
        "gpu_pcie_rx_bytes_per_second": (gpu.dram_bw_gbps_tx, bandwidth),
        "gpu_nvlink_tx_bytes_per_second": (gpu.nvlink_bw_gbps_tx, nvlink),
        "gpu_nvlink_rx_bytes_per_second": (gpu.nvlink_bw_gbps_rx, False),
    }
    for metric, (value, is_measured) in rates.items():
        if value or is_measured:
            yield metric, index, name, "B/s", value * _KIBI
    for key, value in list(gpu.extra_metrics.fields.items())[:MOST_EXTRAS]:
        if value.WhichOneof("kind") == "number_value":
            yield f"gswarm.{key}", index, name, "", value.number_value


def device_name(index: int) -> str:
    return f"gpu{index}" if index >= 0 else ""
