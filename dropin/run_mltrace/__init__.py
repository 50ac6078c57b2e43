"""`python -m run_mltrace`: cloud-diagnostics-xprof's log timeline, as `mltrace` next door."""

from runwatch.compat.xprofiler.mltrace.command import main

__all__ = ["main"]
