"""JAX's compilations, from its own monitoring events.

One compilation has up to three stages (trace, lower, compile), each reported at its end, and a
stage may compile something else inside it.  Stages that follow one another in a thread are one
stretch; of nested stages, only the outermost counts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import COMPILE

STAGES: Final = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
MAX_GAP_NS: Final = 50_000_000
"""The longest gap between two stages of one compilation."""


@dataclass(slots=True)
class Stretch:
    begin_ns: int
    end_ns: int
    stage: int
    beside: bool


def install(tell: Teller) -> None:
    listener = Listener(tell)
    listener.register()
    tell.every_second.append(listener.look)
    tell.at_the_end.append(listener.unregister)


class Listener:
    def __init__(self, tell: Teller) -> None:
        self._tell = tell
        self._lock = threading.RLock()
        self._open: dict[int, list[str]] = {}
        """By thread: the stages it is in, outermost first."""
        self._last: dict[int, Stretch] = {}
        """By thread: the stretch that the next stage may continue."""
        # One object each, so that they can be unregistered.
        self._on: Final[dict[str, Callable[..., None]]] = {
            "event_duration": self._on_duration,
            "scalar": self._on_scalar,
        }

    def register(self) -> None:
        monitoring: Any = sys.modules["jax"].monitoring
        monitoring.register_event_duration_secs_listener(self._on["event_duration"])
        if hasattr(monitoring, "register_scalar_listener"):
            monitoring.register_scalar_listener(self._on["scalar"])

    def unregister(self) -> None:
        self._write(ended_before_ns=self._tell.now() + 1)
        for kind, listener in self._on.items():
            _unregister(kind, listener)

    def look(self) -> None:
        self._write(ended_before_ns=self._tell.now() - MAX_GAP_NS)

    @guarded("note that JAX compiles", quiet=True)
    def _on_scalar(self, event: str, value: float, **_: Any) -> None:
        """A stage begins; newer versions of JAX report that."""
        if event in STAGES:
            self._open.setdefault(threading.get_ident(), []).append(event)

    @guarded("note that JAX has compiled", quiet=True)
    def _on_duration(self, event: str, seconds: float, **_: Any) -> None:
        if event not in STAGES or not (self._tell.listens or self._tell.expects):
            return
        thread = threading.get_ident()
        stack = self._open.get(thread, [])
        while stack and stack.pop() != event:
            pass
        if not stack:
            self._open.pop(thread, None)
            self._outermost(thread, STAGES.index(event), int(seconds * 1e9))

    def _outermost(self, thread: int, stage: int, length_ns: int) -> None:
        end = self._tell.now()
        begin = end - length_ns
        with self._lock:
            last = self._last.pop(thread, None)
        if last is not None and _goes_on(last, stage, begin):
            begin = min(begin, last.begin_ns)
        elif last is not None:
            self._tell_of(last)
        stretch = Stretch(begin, end, stage, self._tell.beside)
        if stage == len(STAGES) - 1:
            self._tell_of(stretch)
            return
        with self._lock:
            self._last[thread] = stretch

    def _write(self, *, ended_before_ns: int) -> None:
        """Record what was traced or lowered and then not compiled."""
        with self._lock:
            old = {
                thread: stretch
                for thread, stretch in self._last.items()
                if stretch.end_ns < ended_before_ns and thread not in self._open
            }
            for thread in old:
                del self._last[thread]
        for stretch in old.values():
            self._tell_of(stretch)

    def _tell_of(self, stretch: Stretch) -> None:
        self._tell.elapsed(
            COMPILE, stretch.begin_ns, stretch.end_ns, beside=stretch.beside, source="jax"
        )


def _goes_on(last: Stretch, stage: int, begin_ns: int) -> bool:
    return stage > last.stage and begin_ns - last.end_ns <= MAX_GAP_NS


def _unregister(kind: str, listener: object) -> None:
    public: Any = sys.modules["jax"].monitoring
    private: Any = sys.modules.get("jax._src.monitoring")
    ways = (
        getattr(public, f"unregister_{kind}_listener", None),
        getattr(private, f"_unregister_{kind}_listener_by_callback", None),
    )
    for unregister in ways:
        if unregister is not None:
            with suppress(AssertionError, ValueError):  # somebody has cleared the list
                unregister(listener)
            return
