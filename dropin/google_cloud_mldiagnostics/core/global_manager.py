"""The current run."""

from runwatch.compat.mldiagnostics.core.global_manager import (
    GlobalRunManager,
    get_current_run,
    get_current_run_id,
    get_global_run_manager,
)

__all__ = [
    "GlobalRunManager",
    "get_current_run",
    "get_current_run_id",
    "get_global_run_manager",
]
