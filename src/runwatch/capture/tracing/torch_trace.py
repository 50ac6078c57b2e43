"""Traces of PyTorch programs: one Kineto (Chrome) trace, compressed.

All threads are recorded, whichever starts the trace; a torch too old for that records only the
thread that starts it.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from runwatch.capture.tracing.traces import KINETO, TraceOptions

COMPRESSION: Final = 1
"""Five times as fast as gzip's usual level, for files a third larger."""


class TorchTrace:
    name = "torch"

    def __init__(self) -> None:
        self._profile: Any = None
        self._on_gpu = False
        self._folder = Path()
        self._label = ""

    def available(self) -> str:
        # A second profiler would end the first one without a word.
        if _another_is_active():
            return "the program itself is tracing (torch.profiler)"
        return ""

    def prepare(self, options: TraceOptions) -> None:
        """Nothing here is slow: see `_make`."""

    def start(self, folder: Path, label: str, options: TraceOptions) -> None:
        self._folder, self._label = folder, label
        cuda: Any = import_module("torch.cuda")
        # A program that only loads data by torch leaves the GPU's events to the other framework.
        self._on_gpu = bool(cuda.is_available() and cuda.is_initialized())
        self._profile = _make(self._on_gpu, options)
        self._profile.__enter__()
        _tell_rank()

    def step(self, number: int) -> AbstractContextManager[Any]:
        from torch.profiler import record_function

        mark: AbstractContextManager[Any] = record_function(f"ProfilerStep#{number}")
        return mark

    def stop(self) -> list[Path]:
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        plain = self._folder / f"{self._label}.json"
        try:
            profile.export_chrome_trace(str(plain))
            return [_compressed(plain, self._folder / f"{self._label}{KINETO}")]
        finally:
            plain.unlink(missing_ok=True)

    def device(self) -> str:
        return "gpu" if self._on_gpu else ""


def _make(on_gpu: bool, options: TraceOptions) -> Any:
    """torch's profiler, or the one inside it.

    torch.profiler looks whether its compiler uses CUDA graphs, and imports the compiler for that,
    which takes seconds: for a program that has it imported anyway, and only there, that matters.
    """
    common = {
        "record_shapes": options.shapes,
        "profile_memory": options.memory,
        "with_stack": options.stacks,
        "experimental_config": _all_threads(),
    }
    if "torch._inductor.config" in sys.modules:
        from torch.profiler import ProfilerActivity, profile

        gpu = [ProfilerActivity.CUDA] if on_gpu else []
        return profile(activities=[ProfilerActivity.CPU, *gpu], **common)
    inner: Any = import_module("torch.autograd.profiler")
    return inner.profile(use_device="cuda" if on_gpu else None, use_kineto=True, **common)


def _tell_rank() -> None:
    """Viewers group the traces of a job by it."""
    distributed: Any = sys.modules.get("torch.distributed")
    add: Any = getattr(sys.modules.get("torch.autograd"), "_add_metadata_json", None)
    if add is None or distributed is None or not distributed.is_available():
        return
    if distributed.is_initialized():
        known = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        add("distributedInfo", json.dumps(known))


def _compressed(plain: Path, target: Path) -> Path:
    """Kineto does not say that it could not write; what it left has no end then."""
    _check_whole(plain)
    with (
        plain.open("rb") as source,
        target.open("wb") as raw,
        gzip.GzipFile(plain.name, "wb", COMPRESSION, raw) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)
    return target


def _check_whole(plain: Path) -> None:
    if not plain.exists():
        raise OSError(f"torch could not write its trace to {plain.parent}")
    with plain.open("rb") as stream:
        stream.seek(max(0, os.path.getsize(plain) - 64))
        if not stream.read().rstrip().endswith(b"}"):
            raise OSError(f"torch could not write all of its trace to {plain.parent} (disk full?)")


def _another_is_active() -> bool:
    module = sys.modules.get("torch.autograd.profiler")
    return bool(getattr(module, "_is_profiler_enabled", False))


def _all_threads() -> Any:
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # torch before 2.7
        return None


def make() -> TorchTrace:
    return TorchTrace()
