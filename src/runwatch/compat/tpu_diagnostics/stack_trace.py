"""Switches the writing of stacks on and off."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig
from runwatch.compat.tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig
from runwatch.compat.tpu_diagnostics.diagnostic import not_a_crash, start, stop

__all__ = [
    "disable_stack_trace_dumping",
    "enable_stack_trace_dumping",
    "user_signal_handler_wrapper",
]


def enable_stack_trace_dumping(stack_trace_config: StackTraceConfig) -> None:
    start(DebugConfig(replace(stack_trace_config, collect_stack_trace=True)))


def disable_stack_trace_dumping(stack_trace_config: StackTraceConfig) -> None:
    stop(DebugConfig(replace(stack_trace_config, collect_stack_trace=True)))


def user_signal_handler_wrapper(
    file_descriptor: Any, interval: float
) -> Callable[[int, object], None]:
    """A handler that writes the stacks of all threads to a file (of text or of bytes)."""

    def user_signal_handler(signum: int, frame: object) -> None:
        line = not_a_crash(interval)
        is_bytes = "b" in getattr(file_descriptor, "mode", "")
        file_descriptor.write(line.encode() if is_bytes else line)
        file_descriptor.flush()
        faulthandler.dump_traceback(file_descriptor, all_threads=True)

    return user_signal_handler
