from runwatch.compat.xprofiler.actions import Register

__all__ = ["Register"]
