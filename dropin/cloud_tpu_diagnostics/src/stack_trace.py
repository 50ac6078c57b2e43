"""The part of it that writes stacks."""

import logging

from runwatch.compat.tpu_diagnostics.stack_trace import (
    disable_stack_trace_dumping,
    enable_stack_trace_dumping,
    user_signal_handler_wrapper,
)

__all__ = [
    "disable_stack_trace_dumping",
    "enable_stack_trace_dumping",
    "logger",
    "user_signal_handler_wrapper",
]

logger = logging.getLogger(__name__)
