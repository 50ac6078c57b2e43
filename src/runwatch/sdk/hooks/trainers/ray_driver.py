"""The driver of Ray Train or Ray Tune: it has others train, and is no rank itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from runwatch.sdk.hooks.teller import Teller

_CALLS: Final = (
    # What `fit` calls, unless it trains in the driver.
    (
        "ray.train.v2.api.data_parallel_trainer",
        "DataParallelTrainer",
        "_initialize_and_run_controller",
    ),
    ("ray.tune.tuner", "Tuner", "fit"),  # also of Ray Train until 2.50
)


def install(tell: Teller) -> None:
    for module, kind, name in _CALLS:
        tell.replace_in(module, kind, name, _around)


def _around(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tell.directs = True
        return function(*args, **kwargs)

    return call
