"""Without a block: start and stop."""

import logging

from runwatch.compat.tpu_diagnostics.debug import (
    send_user_signal,
    start_debugging,
    stop_debugging,
)
from runwatch.compat.tpu_diagnostics.stack_trace import (
    disable_stack_trace_dumping,
    enable_stack_trace_dumping,
)

__all__ = [
    "disable_stack_trace_dumping",
    "enable_stack_trace_dumping",
    "logger",
    "send_user_signal",
    "start_debugging",
    "stop_debugging",
]

logger = logging.getLogger(__name__)
