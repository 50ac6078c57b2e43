"""PyTorch's version and devices, in the words of a run's configs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from runwatch.compat.mldiagnostics.utils.torch_utils.torch_host import get_accelerator_type
from runwatch.sdk.guard import attempt


def torch_version() -> str:
    return str(import_module("torch").__version__)


class TorchHardwareConfig:
    def get_config(self) -> dict[str, str]:
        torch: Any = import_module("torch")
        kind = get_accelerator_type()
        names = ("TPU_NUM_SLICES", "SLICE_COUNT")
        slices = next((v for n in names if (v := os.environ.get(n, "")).isdigit()), "1")
        count = attempt("count the devices", 0, lambda: int(torch.accelerator.device_count()))
        return {
            "device_type": attempt("name the device", kind.value.upper(), self._name),
            "num_slices": slices,
            "devices_per_slice": str(count or 1),
            "accelerator_type": kind.value,
        }

    @staticmethod
    def _name() -> str:
        torch: Any = import_module("torch")
        kind = get_accelerator_type().value
        if kind == "gpu":
            return str(torch.cuda.get_device_name())
        return str(torch.tpu.get_device_name()) if kind == "tpu" else "CPU"
