"""The import name of cloud-diagnostics-xprof's log timeline; `xprofiler.mltrace` is the command.

`python -m mltrace`, `python -m run_mltrace` and `mltrace` are the same.  What makes the trace is
`runwatch.exports.mltrace`.
"""

from xprofiler.mltrace import main

__all__ = ["main"]
