"""`RunPhaseMonitor`: how a run ends.

Runwatch sees that by itself, from the moment the run begins; here a program says what is to happen
before.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from typing import ClassVar

from runwatch.compat.mldiagnostics.core.described import told_phase
from runwatch.compat.mldiagnostics.custom_types.exceptions import NoActiveRunError
from runwatch.compat.mldiagnostics.custom_types.mlrun_types import RunPhase
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import guarded

logger = logging.getLogger("google_cloud_mldiagnostics.utils.run_phase_utils")


class RunPhaseMonitor:
    _handlers: ClassVar[list[Callable[[], None]]] = []
    _lock: ClassVar = threading.Lock()
    _active: ClassVar[RunPhaseMonitor | None] = None

    def __init__(self) -> None:
        run = current_run()
        if run is None:
            raise NoActiveRunError("there is no run: call machinelearning_run() first")
        self._name = run.id

    @classmethod
    def register_cleanup_handler(cls, handler: Callable[[], None]) -> None:
        """To be called once when the program ends, also by an exception."""
        with cls._lock:
            if not cls._handlers:
                atexit.unregister(_clean_up)
                atexit.register(_clean_up)
            cls._handlers.append(handler)

    @classmethod
    def get_active_monitor(cls) -> RunPhaseMonitor | None:
        return cls._active

    def start(self) -> None:
        """The run is watched since it began; this makes it the active monitor."""
        type(self)._active = self

    def exit_cleanup(self) -> None:
        """Call the handlers now."""
        _clean_up()

    def update_ml_run_with_phase(self, run_phase: RunPhase) -> None:
        """COMPLETED or FAILED ends the run."""
        told_phase(self._name, run_phase)


def _clean_up() -> None:
    """In the order in which they came; one that fails does not keep the others."""
    with RunPhaseMonitor._lock:
        handlers, RunPhaseMonitor._handlers[:] = list(RunPhaseMonitor._handlers), []
    for handler in handlers:
        _call(handler)


@guarded("call a cleanup handler")
def _call(handler: Callable[[], None]) -> None:
    handler()
