"""cloud-tpu-diagnostics' names, provided by Runwatch.

A table and nothing else: `diagnostic` and `configuration` are what programs import, `src/` is where
the original keeps the same things.
"""

from cloud_tpu_diagnostics import configuration, diagnostic
from runwatch.compat.submodules import submodules

__all__ = ["configuration", "diagnostic"]

__getattr__, __dir__ = submodules(__name__, "src")
