"""The options of `diagnose`, in the modules and words of cloud-tpu-diagnostics.

`DiagnosticConfig` holds a `DebugConfig`, which holds a `StackTraceConfig`; any of them may be
missing, and then nothing is done.
"""

from __future__ import annotations

from runwatch.compat.tpu_diagnostics.configuration import (
    debug_configuration,
    diagnostic_configuration,
    stack_trace_configuration,
)

__all__ = ["debug_configuration", "diagnostic_configuration", "stack_trace_configuration"]
