from runwatch.configuration.stack_trace_configuration import StackTraceConfig

__all__ = ["StackTraceConfig"]
