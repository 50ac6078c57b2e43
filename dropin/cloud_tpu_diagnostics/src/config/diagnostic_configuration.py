from runwatch.configuration.diagnostic_configuration import DiagnosticConfig

__all__ = ["DiagnosticConfig"]
