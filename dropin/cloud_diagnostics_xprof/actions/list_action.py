from runwatch.compat.xprofiler.actions import List

__all__ = ["List"]
