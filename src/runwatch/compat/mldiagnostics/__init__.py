"""Runs, metrics and profiles as programs written for google-cloud-mldiagnostics ask for them.

The original's four names are here, loaded when they are first used.  Behind them, under the
original's own module names: `api/` has the calls, `custom_types/` the words that they take, `core/`
the current run and its profiles, `commands/` its two commands.  Underneath, a run is a
`runwatch.sdk.run.Run` like any other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from runwatch._nothing import instead_of

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.api import metrics
    from runwatch.compat.mldiagnostics.api.mlrun import machinelearning_run
    from runwatch.compat.mldiagnostics.core.xprof import xprof
    from runwatch.compat.mldiagnostics.custom_types import metric_types

__all__ = ["machinelearning_run", "metric_types", "metrics", "xprof"]

_HOMES: Final = {
    "machinelearning_run": "api.mlrun",
    "metric_types": "custom_types",
    "metrics": "api",
    "xprof": "core.xprof",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'runwatch.compat.mldiagnostics' has no attribute {name!r}")
    home = f"runwatch.compat.mldiagnostics.{_HOMES[name]}"
    try:
        if name in ("metric_types", "metrics"):
            return import_module(f"{home}.{name}")
        value = globals()[name] = getattr(import_module(home), name)
    except (OSError, ImportError) as error:
        if name != "machinelearning_run":
            raise
        return instead_of("init", error)  # not kept: the next time it may be there
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
