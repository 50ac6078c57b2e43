"""A run's configs: the software and the hardware, in the original's words."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Protocol

from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import (
    AcceleratorOrchestrator,
    Framework,
    ServingEngine,
)
from runwatch.compat.mldiagnostics.utils import gcp, host_utils
from runwatch.compat.mldiagnostics.utils.gpu_utils import gpu_metric
from runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric import get_libtpu_version
from runwatch.sdk.guard import text_of

logger = logging.getLogger("google_cloud_mldiagnostics.utils.config_utils")


class _Hardware(Protocol):
    def get_config(self) -> dict[str, str]: ...


class GpuHardwareConfig:
    """This host's GPUs, as their driver tells."""

    def __init__(self) -> None:
        self._name, self._count = gpu_metric.get_gpu_device_info()

    @property
    def device_type(self) -> str:
        return self._name

    @property
    def num_slices(self) -> int:
        return 1

    @property
    def devices_per_slice(self) -> int:
        return self._count

    @property
    def accelerator_type(self) -> str:
        return AcceleratorType.GPU.value

    def get_config(self) -> dict[str, str]:
        return {
            "device_type": self.device_type,
            "num_slices": str(self.num_slices),
            "devices_per_slice": str(self.devices_per_slice),
            "accelerator_type": self.accelerator_type,
        }


class EnvVarTpuHardwareConfig:
    """TPUs, as the environment or the metadata service tells; the device stays asleep."""

    def __init__(self) -> None:
        given = os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get("TPU_TYPE")
        self.tpu_type = given or gcp.get_tpu_accelerator_type() or "unknown"
        cores = self.tpu_type.rpartition("-")[2]
        halves = 2 if self.tpu_type.startswith("v4") else 1  # there a chip counts as two
        self.devices_per_slice = str(int(cores) // halves) if cores.isdigit() else "unknown"

    @property
    def device_type(self) -> str:
        return self.tpu_type

    @property
    def num_slices(self) -> str:
        return os.environ.get("TPU_NUM_SLICES") or os.environ.get("NUM_SLICES") or "1"

    @property
    def accelerator_type(self) -> str:
        return AcceleratorType.TPU.value

    def get_config(self) -> dict[str, str]:
        return {
            "device_type": self.device_type,
            "num_slices": self.num_slices,
            "devices_per_slice": self.devices_per_slice,
            "accelerator_type": self.accelerator_type,
        }


def get_software_config(
    framework: Framework = Framework.JAX,
    serving_engine: ServingEngine = ServingEngine.NONE,
    accelerator_orchestrator: AcceleratorOrchestrator = AcceleratorOrchestrator.NONE,
) -> dict[str, str]:
    package = {Framework.JAX: "jax", Framework.PYTORCH: "torch"}[framework]
    serves = serving_engine is not ServingEngine.NONE
    config = {
        "framework": serving_engine.value if serves else framework.value,
        "framework_version": _version("vllm" if serves else package),
        "xla_flags": os.environ.get("XLA_FLAGS") or "default",
        "libtpu_version": get_libtpu_version(),
    }
    platforms = os.environ.get("JAX_PLATFORMS", "").lower()
    if framework is Framework.JAX and ("proxy" in platforms or "pathways" in platforms):
        accelerator_orchestrator = AcceleratorOrchestrator.PATHWAYS
    if accelerator_orchestrator is not AcceleratorOrchestrator.NONE:
        config["accelerator_orchestrator"] = accelerator_orchestrator.value
    return config


def get_hardware_config(
    framework: Framework = Framework.JAX, serving_engine: ServingEngine = ServingEngine.NONE
) -> dict[str, str]:
    """Asks the framework, which wakes its devices; `machinelearning_run` itself does not."""
    keys = ("device_type", "num_slices", "devices_per_slice", "accelerator_type")
    found = _hardware(framework, serving_engine)
    return {**dict.fromkeys(keys, "unknown"), **({} if found is None else found.get_config())}


def get_accelerator_type(
    framework: Framework = Framework.JAX, serving_engine: ServingEngine = ServingEngine.NONE
) -> str:
    return get_hardware_config(framework, serving_engine)["accelerator_type"]


def sanitize_config(config: Mapping[str, Any]) -> dict[str, str]:
    """All of it as text."""
    return {text_of(key): text_of(value) for key, value in config.items()}


def _hardware(framework: Framework, serving_engine: ServingEngine) -> _Hardware | None:
    if serving_engine is ServingEngine.VLLM:
        kind = host_utils.get_accelerator_type(framework, serving_engine)
        if kind is AcceleratorType.GPU:
            return GpuHardwareConfig()
        return EnvVarTpuHardwareConfig() if kind is AcceleratorType.TPU else None
    if framework is Framework.JAX:
        from runwatch.compat.mldiagnostics.utils.jax_utils.jax_config import JaxHardwareConfig

        return JaxHardwareConfig()
    from runwatch.compat.mldiagnostics.utils.torch_utils.torch_config import TorchHardwareConfig

    return TorchHardwareConfig()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
