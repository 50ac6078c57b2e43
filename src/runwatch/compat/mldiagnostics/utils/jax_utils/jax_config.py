"""JAX's version and devices, in the words of a run's configs.  Asking wakes the devices."""

from __future__ import annotations

from importlib import import_module

from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType


def jax_version() -> str:
    return str(import_module("jax").__version__)


class JaxHardwareConfig:
    def __init__(self) -> None:
        self._devices = import_module("jax").devices()
        if not self._devices:
            raise ValueError("JAX has no devices")

    @property
    def accelerator_type(self) -> str:
        platform = str(self._devices[0].platform).lower()
        known = {kind.value for kind in AcceleratorType}
        return platform if platform in known else AcceleratorType.TPU.value

    def get_config(self) -> dict[str, str]:
        slices = len({getattr(device, "slice_index", 0) for device in self._devices})
        return {
            "device_type": str(self._devices[0].device_kind),
            "num_slices": str(slices),
            "devices_per_slice": str(len(self._devices) // slices),
            "accelerator_type": self.accelerator_type,
        }
