"""Profiles."""

from runwatch.compat.mldiagnostics.core.xprof import (
    Xprof,
    start_on_demand_xprof,
    stop_on_demand_xprof,
)

__all__ = ["Xprof", "start_on_demand_xprof", "stop_on_demand_xprof"]
