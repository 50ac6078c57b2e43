"""Profiles.  As in the original, a run needs a `gcs_path` for them; `runwatch.xprof` does not."""

from __future__ import annotations

from runwatch import xprof
from runwatch.sdk.exceptions import ProfilingError
from runwatch.sdk.run import Run
from runwatch.sdk.xprof import start_on_demand_xprof, stop_on_demand_xprof

__all__ = ["Xprof", "start_on_demand_xprof", "stop_on_demand_xprof"]


class Xprof(xprof):
    def _check(self, run: Run) -> None:
        if not getattr(run, "gcs_path", None):
            raise ProfilingError(
                f"run {run.id} has no gcs_path: machinelearning_run(gcs_path=…) says where "
                "profiles go (a directory will do)"
            )
