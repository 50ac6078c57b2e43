from runwatch.compat.xprofiler.actions import Capture

__all__ = ["Capture"]
