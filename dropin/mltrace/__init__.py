"""The import name of cloud-diagnostics-xprof's log timeline.

`python -m mltrace`, `python -m run_mltrace` and `mltrace` are the same command.
"""

from runwatch.compat.xprofiler.mltrace.command import main

__all__ = ["main"]
