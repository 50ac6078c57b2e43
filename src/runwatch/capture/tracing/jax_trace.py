"""Traces of JAX programs: one xplane file.

JAX allows one trace at a time, and would raise in the program that begins a second one.  It takes a
lock before it begins or ends one: there ours gives way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from runwatch.capture.tracing.traces import (
    XPLANE,
    GaveWay,
    TraceOptions,
    gather_xplanes,
    giving_way,
)

_DEVICES = {"gpu": "gpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}


class JaxTrace:
    name = "jax"

    def __init__(self) -> None:
        self._session: Any = None
        self._space: bytes | None = None
        """The trace, once it has ended."""
        self._has_session = False
        """Else JAX keeps it where we do not find it, and only `stop_trace` ends it."""
        self._ending = threading.RLock()
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

    def start(self, folder: Path, label: str, options: TraceOptions, gave_way: GaveWay) -> None:
        import jax

        self._folder, self._label = folder, label
        chosen: dict[str, Any] = {}
        if hasattr(jax.profiler, "ProfileOptions"):
            chosen["profiler_options"] = profile = jax.profiler.ProfileOptions()
            profile.python_tracer_level = int(options.python)
        jax.profiler.start_trace(str(folder), **chosen)
        state = _state()
        session = getattr(state, "profile_session", None)
        if state is not None and hasattr(session, "stop"):
            self._session, self._has_session = session, True
            state.lock = _Gate(state.lock, giving_way(self._end, "jax.profiler", gave_way))

    def step(self, number: int) -> AbstractContextManager[Any]:
        import jax

        mark: AbstractContextManager[Any] = jax.profiler.StepTraceAnnotation(
            "step", step_num=number
        )
        return mark

    def _end(self) -> bool:
        """False if it has ended before.

        Not stop_trace: it also converts the trace, which takes as long again, and when it cannot
        write, JAX believes for ever that the trace is going on.
        """
        with self._ending:
            session, self._session = self._session, None
            if session is None:
                return False
            state = _state()
            state.lock = state.lock.lock
            with state.lock:
                try:
                    self._space = session.stop()
                finally:
                    state.reset()
            return True

    def stop(self) -> list[Path]:
        if not self._has_session:
            return self._stop_publicly()
        self._end()
        space, self._space = self._space, None
        return [] if space is None else self._write(space)

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


class _Gate:
    """A lock; `before` is called first."""

    def __init__(self, lock: Any, before: Callable[[], None]) -> None:
        self.lock = lock
        self._before = before

    def __enter__(self) -> Any:
        self._before()
        return self.lock.__enter__()

    def __exit__(self, *raised: Any) -> Any:
        return self.lock.__exit__(*raised)


def _state() -> Any:
    """What JAX knows of the trace that is going on; None in a version that keeps it elsewhere."""
    state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
    known = ("lock", "profile_session", "reset")
    return state if all(hasattr(state, name) for name in known) else None


def make() -> JaxTrace:
    return JaxTrace()
