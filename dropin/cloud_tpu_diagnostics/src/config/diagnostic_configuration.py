from runwatch.compat.tpu_diagnostics.configuration.diagnostic_configuration import DiagnosticConfig

__all__ = ["DiagnosticConfig"]
