from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig

__all__ = ["DebugConfig"]
