"""Accelerate: what `Accelerator.log` logs, and its checkpoints.

Its loop is the program's own, with torch's optimizers and loaders: steps come from those.  Where
gradients are accumulated, Accelerate does not call the optimizer, and there is no step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

SOURCE: Final = "accelerate"


def install(tell: Teller) -> None:
    if not is_known(tell, SOURCE):
        return
    accelerator: Any = sys.modules["accelerate.accelerator"].Accelerator
    tell.replace("log", [accelerator], partial(_around_log, tell))
    tell.replace("save_state", [accelerator], partial(tell.spanned, CHECKPOINT_SAVE))
    tell.replace("load_state", [accelerator], partial(tell.spanned, CHECKPOINT_RESTORE))


def _around_log(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    @guarded("tell what is logged", quiet=True)
    def say(values: Any = None, step: Any = None, *_: Any) -> None:
        tell.metrics(dict(values or {}), step)

    @wraps(function)
    def log(self: Any, *args: Any, **kwargs: Any) -> Any:
        say(*args, **{name: kwargs[name] for name in ("values", "step") if name in kwargs})
        with tell.alone():
            return function(self, *args, **kwargs)

    return log
