"""`runwatch.configuration`."""

from runwatch.configuration import (
    debug_configuration,
    diagnostic_configuration,
    stack_trace_configuration,
)

__all__ = ["debug_configuration", "diagnostic_configuration", "stack_trace_configuration"]
