"""The options of `diagnose`."""

from __future__ import annotations

from dataclasses import dataclass

from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig


@dataclass
class DiagnosticConfig:
    debug_config: DebugConfig | None = None
