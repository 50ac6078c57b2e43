from runwatch.compat.tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig

__all__ = ["StackTraceConfig"]
