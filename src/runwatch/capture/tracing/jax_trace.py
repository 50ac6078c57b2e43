"""Traces of JAX programs: one xplane file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from runwatch.capture.tracing.traces import XPLANE, TraceOptions, gather_xplanes

_DEVICES = {"gpu": "gpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}


class JaxTrace:
    name = "jax"

    def __init__(self) -> None:
        self._session: Any = None
        self._folder = Path()
        self._label = ""

    def available(self) -> str:
        state = _state()
        if state is not None and state.profile_session is not None:
            return "the program itself is tracing (jax.profiler.start_trace)"
        return ""

    def prepare(self, options: TraceOptions) -> None:
        import jax

        jax.default_backend()  # a backend that wakes later would be missing in the trace

    def start(self, folder: Path, label: str, options: TraceOptions) -> None:
        import jax

        self._folder, self._label = folder, label
        chosen: dict[str, Any] = {}
        if hasattr(jax.profiler, "ProfileOptions"):
            chosen["profiler_options"] = profile = jax.profiler.ProfileOptions()
            profile.python_tracer_level = int(options.python)
        jax.profiler.start_trace(str(folder), **chosen)
        self._session = getattr(_state(), "profile_session", None)

    def step(self, number: int) -> AbstractContextManager[Any]:
        import jax

        mark: AbstractContextManager[Any] = jax.profiler.StepTraceAnnotation(
            "step", step_num=number
        )
        return mark

    def stop(self) -> list[Path]:
        state, session = _state(), self._session
        self._session = None
        if state is None or session is None or not hasattr(session, "stop"):
            return self._stop_publicly()
        with state.lock:
            if state.profile_session is not session:  # the program has called stop_trace
                return gather_xplanes(self._folder, self._label)
            # Not stop_trace: it also converts the trace, which takes as long again, and when it
            # cannot write, JAX believes for ever that the trace is going on.
            try:
                space: bytes = session.stop()
            finally:
                state.reset()
        return self._write(space)

    def _stop_publicly(self) -> list[Path]:
        profiler: Any = import_module("jax.profiler")
        profiler.stop_trace()
        return gather_xplanes(self._folder, self._label)

    def _write(self, space: bytes) -> list[Path]:
        file = self._folder / f"{self._label}{XPLANE}"
        file.write_bytes(space)
        return [file]

    def device(self) -> str:
        import jax

        return _DEVICES.get(jax.default_backend(), "")


def _state() -> Any:
    """What JAX knows of the trace that is going on; None in a version that keeps it elsewhere."""
    state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
    known = ("lock", "profile_session", "reset")
    return state if all(hasattr(state, name) for name in known) else None


def make() -> JaxTrace:
    return JaxTrace()
