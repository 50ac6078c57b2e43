"""Runwatch: see what your training run is doing.

    run = runwatch.init("llama-70b", config=cfg)
    for step, batch in run.steps(loader):
        run.log(loss=train_step(batch))
    run.finish()

Standard library only.  The names offered here are loaded when they are first used, so that
importing another room (`runwatch.record`, `runwatch.store`) does not load the SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from runwatch._nothing import instead_of
from runwatch._version import __version__

if TYPE_CHECKING:
    from runwatch.sdk.diagnosing import diagnose
    from runwatch.sdk.front import current_run, data, finish, init, log, profile, span, step, steps
    from runwatch.sdk.values.config import ConfigDict

    config: ConfigDict

__all__ = [
    "__version__",
    "config",
    "current_run",
    "data",
    "diagnose",
    "finish",
    "init",
    "log",
    "profile",
    "span",
    "step",
    "steps",
]

_HOMES: Final = {
    **dict.fromkeys(
        ("current_run", "data", "finish", "init", "log", "profile", "span", "step", "steps"),
        "runwatch.sdk.front",
    ),
    "diagnose": "runwatch.sdk.diagnosing",
}


def __getattr__(name: str) -> Any:
    if name == "config":
        return import_module("runwatch.sdk.front").config()  # of the current run
    if name not in _HOMES:
        raise AttributeError(f"module 'runwatch' has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    except (OSError, ImportError) as error:
        return instead_of(name, error)  # not cached: the next import may succeed
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
