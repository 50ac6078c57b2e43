"""The current run.  Runwatch keeps it; this only answers for it."""

from __future__ import annotations

from typing import Any

from runwatch.sdk.front import current_run

__all__ = [
    "GlobalRunManager",
    "get_current_run",
    "get_current_run_id",
    "get_global_run_manager",
]


class GlobalRunManager:
    @property
    def run(self) -> Any:
        """The run that is going on, or None."""
        return current_run()

    @property
    def run_id(self) -> str | None:
        run = current_run()
        return None if run is None else run.id

    @property
    def run_group(self) -> str | None:
        run = current_run()
        return None if run is None else run.group

    @property
    def location(self) -> str | None:
        return getattr(current_run(), "location", None)

    @property
    def project_id(self) -> str | None:
        return getattr(current_run(), "project", None)

    def has_active_run(self) -> bool:
        return current_run() is not None

    def is_initialized(self) -> bool:
        return current_run() is not None

    def clear(self) -> None:
        """End the run that is going on."""
        run = current_run()
        if run is not None:
            run.finish()


_manager = GlobalRunManager()


def get_global_run_manager() -> GlobalRunManager:
    return _manager


def get_current_run() -> Any:
    return _manager.run


def get_current_run_id() -> str | None:
    return _manager.run_id
