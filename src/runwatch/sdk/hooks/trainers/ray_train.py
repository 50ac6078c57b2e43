"""Ray Train: what a worker reports.

A report is no step: most programs report once per epoch.  Steps come from the framework that the
worker trains with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_SAVE


def install(tell: Teller) -> None:
    train: Any = sys.modules["ray.train"]
    logger = Logger(tell, "ray")
    if not logger.knows(train.report, "metrics"):
        return

    @guarded("note a report")
    def note(metrics: Any = None) -> None:
        if isinstance(metrics, Mapping):
            logger.row(metrics, None)

    def reported(function: Callable[..., Any]) -> Callable[..., Any]:
        # With a checkpoint, a report waits until that is stored.
        saves = tell.timed(CHECKPOINT_SAVE, function)

        @wraps(function)
        def report(*args: Any, **kwargs: Any) -> Any:
            if not (tell.listens or tell.expects):
                return function(*args, **kwargs)
            note(*args[:1], **{k: v for k, v in kwargs.items() if k == "metrics"})
            has_checkpoint = next(iter(args[1:2]), kwargs.get("checkpoint")) is not None
            return (saves if has_checkpoint else function)(*args, **kwargs)

        return report

    places = [train, *(sys.modules[n] for n in ("ray.air.session",) if n in sys.modules)]
    tell.replace("report", places, reported)
