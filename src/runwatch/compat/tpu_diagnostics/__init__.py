"""Stacks on faults and at intervals, as programs written for cloud-tpu-diagnostics ask for them.

`diagnostic.diagnose` takes the original's `configuration`; `debug.py` and `stack_trace.py` are for
programs that have no block to put around.  What collects stacks is `sdk/diagnosing.py`.
"""

from runwatch.compat.tpu_diagnostics import configuration, diagnostic

__all__ = ["configuration", "diagnostic"]
