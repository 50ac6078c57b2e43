from runwatch.compat.xprofiler.actions import Delete

__all__ = ["Delete"]
