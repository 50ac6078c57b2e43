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
    from runwatch.sdk.front import (
        begin_span,
        begin_step,
        current_run,
        data,
        end_step,
        finish,
        init,
        log,
        profile,
        span,
        step,
        steps,
    )
    from runwatch.sdk.run import Run
    from runwatch.sdk.values.config import ConfigDict
    from runwatch.sdk.wandb_like.calls import *  # noqa: F403

    config: ConfigDict
    run: Run | None
    summary: ConfigDict

__all__ = [
    "__version__",
    "begin_span",
    "begin_step",
    "config",
    "current_run",
    "data",
    "diagnose",
    "end_step",
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
        (
            "begin_span",
            "begin_step",
            "current_run",
            "data",
            "end_step",
            "finish",
            "init",
            "log",
            "profile",
            "span",
            "step",
            "steps",
        ),
        "runwatch.sdk.front",
    ),  # fmt: skip
    "diagnose": "runwatch.sdk.diagnosing",
}

_OF_THE_CURRENT_RUN: Final = {
    "config": ("runwatch.sdk.front", "config"),
    "run": ("runwatch.sdk.front", "current_run"),
    "summary": ("runwatch.sdk.wandb_like.calls", "summary"),
}


def __getattr__(name: str) -> Any:
    try:
        if name in _OF_THE_CURRENT_RUN:
            home, function = _OF_THE_CURRENT_RUN[name]
            return getattr(import_module(home), function)()
        home = _HOMES.get(name) or _home_of_wandbs(name)
        value = globals()[name] = getattr(import_module(home), name)
    except (OSError, ImportError) as error:
        return instead_of(name, error)  # not cached: the next import may succeed
    return value


def _home_of_wandbs(name: str) -> str:
    """Where a name of wandb lives, for `import runwatch as wandb`."""
    if name.startswith("_"):
        raise AttributeError(f"module 'runwatch' has no attribute {name!r}")
    from runwatch._wandb_names import HOME, OFFERED, why_absent

    if name not in OFFERED:
        raise AttributeError(why_absent(name))
    return HOME


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
