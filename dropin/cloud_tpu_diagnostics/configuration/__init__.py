"""`runwatch.compat.tpu_diagnostics.configuration`."""

from runwatch.compat.tpu_diagnostics.configuration import (
    debug_configuration,
    diagnostic_configuration,
    stack_trace_configuration,
)

__all__ = ["debug_configuration", "diagnostic_configuration", "stack_trace_configuration"]
