"""Traces of PyTorch programs: one Kineto (Chrome) trace, compressed.

All threads are recorded, whichever starts the trace; a torch too old for that records only the
thread that starts it.

A second profiler would end ours without a word, and exporting what is left then kills the program.
So the functions of torch that prepare and enable a profiler are replaced while we record.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from runwatch.capture.tracing.traces import KINETO, GaveWay, TraceOptions, giving_way

COMPRESSION: Final = 1
"""Five times as fast as gzip's usual level, for files a third larger."""
TRACES_ITSELF: Final = "the program itself is tracing (torch.profiler)"


class TorchTrace:
    name = "torch"

    def __init__(self) -> None:
        self._profile: Any = None
        self._results: Any = None
        """Of the profile, once it has ended."""
        self._ending = threading.RLock()
        self._open_marks: list[Any] = []
        """The open step's."""
        self._others: _Others | None = None
        self._on_gpu = False
        self._folder = Path()
        self._label = ""

    def available(self) -> str:
        return TRACES_ITSELF if _another_is_active() else ""

    def prepare(self, options: TraceOptions) -> None:
        """Nothing here is slow: see `_make`."""

    def start(self, folder: Path, label: str, options: TraceOptions, gave_way: GaveWay) -> None:
        if _another_is_active():  # it began after we were asked
            raise RuntimeError(TRACES_ITSELF)
        self._folder, self._label = folder, label
        cuda: Any = import_module("torch.cuda")
        # A program that only loads data by torch leaves the GPU's events to the other framework.
        self._on_gpu = bool(cuda.is_available() and cuda.is_initialized())
        self._profile = _make(self._on_gpu, options)
        self._profile.__enter__()
        _tell_rank()
        self._others = _Others(giving_way(self._end, "torch.profiler", gave_way))

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        from torch.profiler import record_function

        mark: Any = record_function(f"ProfilerStep#{number}")
        with self._ending:
            if self._profile is not None:
                mark.__enter__()
                self._open_marks.append(mark)
        try:
            yield
        finally:
            self._close_marks()

    def _close_marks(self) -> None:
        """A mark that is open when its trace ends, and closed during the next one, is written into
        memory that torch has freed: the program would die."""
        with suppress(IndexError):
            while True:
                self._open_marks.pop().__exit__(None, None, None)

    def _end(self) -> bool:
        """False if it has ended before."""
        with self._ending:
            profile, self._profile = self._profile, None
            if profile is None:
                return False
            self._close_marks()
            profile.__exit__(None, None, None)
            self._results = getattr(profile, "profiler", profile).kineto_results
            return True

    def stop(self) -> list[Path]:
        self._end()
        if self._others is not None:
            self._others.forget()
            self._others = None
        results, self._results = self._results, None
        if results is None or _is_empty(results):
            raise RuntimeError("another profiler ended it, and what it had recorded is lost")
        plain = self._folder / f"{self._label}.json"
        try:
            results.save(str(plain))
            return [_compressed(plain, self._folder / f"{self._label}{KINETO}")]
        finally:
            plain.unlink(missing_ok=True)

    def device(self) -> str:
        return "gpu" if self._on_gpu else ""


class _Others:
    """Sees the program's own profilers begin, in place of the two functions of torch that begin
    one."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._module = cast(Any, import_module("torch.autograd.profiler"))
        self._prepare = self._module._prepare_profiler
        self._enable = self._module._enable_profiler
        self._module._prepare_profiler = self._prepare_another
        self._module._enable_profiler = self._enable_another

    def forget(self) -> None:
        if self._module._prepare_profiler == self._prepare_another:
            self._module._prepare_profiler = self._prepare
            self._module._enable_profiler = self._enable

    def _prepare_another(self, *arguments: Any, **named: Any) -> None:
        self._before()
        self._prepare(*arguments, **named)

    def _enable_another(self, *arguments: Any, **named: Any) -> None:
        self._before()
        self._enable(*arguments, **named)


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


def _is_empty(results: Any) -> bool:
    """Of a trace that somebody else has ended: to save it would kill the program."""
    began = getattr(results, "trace_start_ns", None) or results.trace_start_us  # torch before 2.4
    return not began()


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
    """Also one that is prepared, and waits for its first step: preparing ours would undo that."""
    module: Any = sys.modules.get("torch.autograd.profiler")
    if module is None or getattr(module, "_is_profiler_enabled", False):
        return module is not None
    steps = getattr(getattr(module, "KinetoStepTracker", None), "_step_dict", {})
    if "ProfilerStep" not in steps:  # nobody has a schedule
        return False
    profiles = (p for p in gc.get_referrers(module.profile) if issubclass(type(p), module.profile))
    return any(p.entered and p.kineto_results is None for p in profiles)


def _all_threads() -> Any:
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # torch before 2.7
        return None


def make() -> TorchTrace:
    return TorchTrace()
