"""This process and its devices, as JAX knows them.  Asking wakes the devices."""

from __future__ import annotations

from importlib import import_module

from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType
from runwatch.sdk.guard import attempt


def get_jax_process_index() -> int:
    return int(import_module("jax").process_index())


def get_accelerator_type() -> AcceleratorType:
    def ask() -> AcceleratorType:
        device = import_module("jax").devices()[0]
        words = f"{device.platform} {device.device_kind}".lower()
        for kind in (AcceleratorType.TPU, AcceleratorType.GPU, AcceleratorType.CPU):
            if kind.value in words:
                return kind
        return AcceleratorType.GPU if "cuda" in words else AcceleratorType.UNKNOWN

    return attempt("ask JAX for its devices", AcceleratorType.UNKNOWN, ask)
