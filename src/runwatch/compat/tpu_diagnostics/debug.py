"""For programs that cannot use a `with` block: start and stop."""

from __future__ import annotations

import time

from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig
from runwatch.compat.tpu_diagnostics.diagnostic import (
    ask_main_thread,
    is_collecting,
    is_handled,
    start,
    stop,
)

__all__ = ["send_user_signal", "start_debugging", "stop_debugging"]


def start_debugging(debug_config: DebugConfig | None) -> None:
    start(debug_config)


def stop_debugging(debug_config: DebugConfig | None) -> None:
    stop(debug_config)


def send_user_signal(stack_trace_interval_seconds: float) -> None:
    """SIGUSR1 to the main thread, again and again, while stacks are collected; or, if they are not,
    while the program has a handler of its own for it."""
    is_ours = is_collecting()
    while is_collecting() if is_ours else is_handled():
        time.sleep(stack_trace_interval_seconds)
        ask_main_thread()
