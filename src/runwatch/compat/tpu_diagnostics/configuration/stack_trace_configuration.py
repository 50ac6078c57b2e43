"""Whether, where and how often stacks are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COLLECT_STACK_TRACE_DEFAULT: Final = False
STACK_TRACE_TO_CLOUD_DEFAULT: Final = False
STACK_TRACE_INTERVAL_SECONDS_DEFAULT: Final = 600
STACK_TRACE_DIR_DEFAULT: Final = "/tmp/debugging/"


@dataclass
class StackTraceConfig:
    """Stacks of all threads on faults, on SIGUSR1 and every `stack_trace_interval_seconds`."""

    collect_stack_trace: bool = COLLECT_STACK_TRACE_DEFAULT
    stack_trace_to_cloud: bool = STACK_TRACE_TO_CLOUD_DEFAULT
    """To a file in /tmp/debugging, from where they may be uploaded; else to standard error."""
    stack_trace_interval_seconds: float = STACK_TRACE_INTERVAL_SECONDS_DEFAULT
