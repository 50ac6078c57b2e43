from runwatch.configuration.debug_configuration import DebugConfig

__all__ = ["DebugConfig"]
