"""`python -m run_mltrace`: cloud-diagnostics-xprof's log timeline, as `mltrace` next door.

It has nothing of its own; the command is `xprofiler.mltrace`.
"""

from xprofiler.mltrace import main

__all__ = ["main"]
