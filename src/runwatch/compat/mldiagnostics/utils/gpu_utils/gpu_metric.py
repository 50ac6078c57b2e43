"""What NVIDIA's driver says of each GPU; nothing where there is no driver.

How busy the tensor cores are is not among the driver's simple answers: the agent measures it, where
the GPU can be measured (docs/devices.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

from runwatch.sdk.guard import attempt

logger = logging.getLogger("google_cloud_mldiagnostics.utils.gpu_utils.gpu_metric")

NVML_FI_DEV_GPU_UTIL_TENSOR: Final = 156
"""The number that the original asks for.  In NVML it counts errors of an NVLink: unused here."""

T = TypeVar("T")


def get_gpu_duty_cycle() -> list[float]:
    """Percent of the time in which a kernel ran."""
    return _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu))


get_gpu_utilization = get_gpu_duty_cycle


def get_gpu_tensorcore_utilization() -> list[float]:
    return []


def get_vram_utilization() -> list[float]:
    def used(nvml: Any, gpu: Any) -> float:
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        return 100.0 * float(memory.used) / float(memory.total)

    return _each(used)


def get_gpu_device_info() -> tuple[str, int]:
    """The first GPU's name, and how many there are."""
    names = _each(lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu))
    name = names[0] if names else "unknown"
    return name.decode() if isinstance(name, bytes) else str(name), len(names)


def _each(question: Callable[[Any, Any], T]) -> list[T]:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return []

    def ask() -> list[T]:
        nvml.nvmlInit()
        try:
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            return [question(nvml, handle) for handle in handles]
        finally:
            nvml.nvmlShutdown()

    return attempt("ask NVML", [], ask, quiet=True)
