"""One source of numbers per file, all of the same shape.

A collector yields `Sample`s, a device collector also `Notice`s; it knows nothing of journals,
heads or other collectors.  A number that cannot be read gives no sample: absent is not zero.
Rates need two readings, so the first gives none.  A new source is one new file here and one line
in `COLLECTORS` (read in the agent's own loop) or `DEVICES` (each in its own thread).  The loop in
`agent/main.py` calls them, and handles their failures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runwatch.agent.collectors import amd, nvml, tpu
from runwatch.agent.collectors.base import (
    Collector,
    DeviceCollector,
    Devices,
    Notice,
    Reading,
    Sample,
    Target,
    Targets,
)
from runwatch.agent.collectors.disk import DiskCollector
from runwatch.agent.collectors.host import HostCollector
from runwatch.agent.collectors.network import NetworkCollector
from runwatch.agent.collectors.processes import ProcessCollector

__all__ = [
    "COLLECTORS",
    "DEVICES",
    "Collector",
    "DeviceCollector",
    "Devices",
    "Notice",
    "Reading",
    "Sample",
    "Target",
    "Targets",
]

COLLECTORS: tuple[Callable[[Path, Targets], Collector], ...] = (
    lambda root, targets: HostCollector(),
    lambda root, targets: DiskCollector(places=(Path("/"), root)),
    lambda root, targets: NetworkCollector(),
    lambda root, targets: ProcessCollector(targets),
)

DEVICES = {
    "nvml": (nvml.present, nvml.open_collectors),
    "tpu": (tpu.present, tpu.open_collectors),
    "amd": (amd.present, amd.open_collectors),
}
"""Name -> whether the host has such a device, and how to open its collectors."""
