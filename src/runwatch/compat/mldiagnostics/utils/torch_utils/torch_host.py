"""This process and its devices, as PyTorch knows them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from runwatch.compat.mldiagnostics.custom_types.metric_types import AcceleratorType
from runwatch.sdk.guard import attempt


def get_torch_process_index() -> int | None:
    """None before `init_process_group`."""
    distributed: Any = import_module("torch.distributed")
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def get_torch_local_process_index() -> int:
    return _number("LOCAL_RANK", 0)


def get_torch_local_world_size() -> int:
    return _number("LOCAL_WORLD_SIZE", 1)


def is_torch_local_master_process() -> bool:
    return get_torch_local_process_index() == 0


def get_accelerator_type() -> AcceleratorType:
    """Also GPUs, which the original calls a CPU."""

    def ask() -> AcceleratorType:
        torch: Any = import_module("torch")
        accelerator = torch.accelerator
        kind = str(accelerator.current_accelerator().type) if accelerator.is_available() else "cpu"
        return {"tpu": AcceleratorType.TPU, "cuda": AcceleratorType.GPU}.get(
            kind, AcceleratorType.CPU
        )

    return attempt("ask PyTorch for its devices", AcceleratorType.CPU, ask)


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else otherwise
