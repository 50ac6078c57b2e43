"""Traces of torch_xla programs: one xplane file.  Not tried on a machine that has torch_xla."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from runwatch.capture.tracing.traces import GaveWay, TraceOptions, gather_xplanes


class XlaTrace:
    name = "torch_xla"

    def __init__(self) -> None:
        self._folder = Path()
        self._label = ""

    def available(self) -> str:
        profiler = _profiler()

        if not hasattr(profiler, "start_trace"):
            return "this torch_xla cannot trace itself (it has no start_trace)"
        return ""

    def prepare(self, options: TraceOptions) -> None:
        _profiler()

    def start(self, folder: Path, label: str, options: TraceOptions, gave_way: GaveWay) -> None:
        profiler = _profiler()

        self._folder, self._label = folder / "torch_xla", label
        profiler.start_trace(str(self._folder))

    def step(self, number: int) -> AbstractContextManager[Any]:
        profiler = _profiler()

        mark: AbstractContextManager[Any] = profiler.StepTrace("step", step_num=number)
        return mark

    def stop(self) -> list[Path]:
        profiler = _profiler()

        profiler.stop_trace()
        return gather_xplanes(self._folder, self._label)

    def device(self) -> str:
        return ""  # which device it is, torch_xla tells only by waking it


def _profiler() -> Any:
    return import_module("torch_xla.debug.profiler")


def make() -> XlaTrace:
    return XlaTrace()
