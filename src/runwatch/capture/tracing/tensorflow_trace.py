"""Traces of TensorFlow programs: one xplane file.  Not tried on a machine that has TensorFlow."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from runwatch.capture.tracing.traces import GaveWay, TraceOptions, gather_xplanes


class TensorflowTrace:
    name = "tensorflow"

    def __init__(self) -> None:
        self._folder = Path()
        self._label = ""

    def available(self) -> str:
        return ""

    def prepare(self, options: TraceOptions) -> None:
        _profiler()

    def start(self, folder: Path, label: str, options: TraceOptions, gave_way: GaveWay) -> None:
        self._folder, self._label = folder / "tensorflow", label
        profiler = _profiler()
        profiler.start(
            str(self._folder),
            options=profiler.ProfilerOptions(python_tracer_level=int(options.python)),
        )

    def step(self, number: int) -> AbstractContextManager[Any]:
        mark: AbstractContextManager[Any] = _profiler().Trace("step", step_num=number, _r=1)
        return mark

    def stop(self) -> list[Path]:
        _profiler().stop()
        return gather_xplanes(self._folder, self._label)

    def device(self) -> str:
        tensorflow: Any = import_module("tensorflow")
        return "gpu" if tensorflow.config.list_physical_devices("GPU") else ""


def _profiler() -> Any:
    return import_module("tensorflow").profiler.experimental


def make() -> TensorflowTrace:
    return TensorflowTrace()
