"""What helps with a program that hangs or crashes."""

from __future__ import annotations

from dataclasses import dataclass

from runwatch.compat.tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig


@dataclass
class DebugConfig:
    stack_trace_config: StackTraceConfig | None = None
