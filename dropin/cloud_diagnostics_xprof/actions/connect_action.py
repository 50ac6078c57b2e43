from runwatch.compat.xprofiler.actions import Connect

__all__ = ["Connect"]
