"""Trackio: `Run.log`, and the settings that `init` was given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.values.rows import Rows


def install(tell: Teller) -> None:
    trackio: Any = sys.modules["trackio"]
    logger = Logger(tell, "trackio")
    run_type: Any = trackio.Run
    if not logger.knows(run_type.log, "self", "metrics", "step"):
        return
    listener = Listener(logger)
    tell.replace("init", [trackio], logger.noting(listener.begun, result=True))
    tell.replace("log", [run_type], logger.noting(listener.logged))


class Listener:
    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._rows: WeakKeyDictionary[Any, Rows] = WeakKeyDictionary()

    def begun(self, run: Any, *_: Any, **__: Any) -> None:
        config = getattr(run, "config", None)
        if isinstance(config, Mapping):
            self._logger.config({k: v for k, v in config.items() if not k.startswith("_")})

    def logged(self, run: Any, metrics: Any = None, step: Any = None) -> None:
        rows = self._rows.get(run)
        if rows is None:
            # After this call; a run that goes on does not begin with row 0.
            following = getattr(run, "_next_step", None)
            first = following - 1 if isinstance(following, int) and step is None else 0
            rows = self._rows[run] = Rows(first)
        at = rows.at(step, commit=True)
        if isinstance(metrics, Mapping):
            self._logger.row(metrics, at, counts=step is not None)
