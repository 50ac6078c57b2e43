"""MLflow: metrics and parameters, through its client, as `mlflow.log_metric` and autologging do.

MLflow says step 0 where the program gives none.  So a name that comes at step 0 a second time has
no step of its own: it gets the run's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller

_METHODS: Final = {
    "log_metric": ("self", "run_id", "key", "value"),
    "log_param": ("self", "run_id", "key", "value"),
    "log_batch": ("self", "run_id", "metrics", "params"),
}


def install(tell: Teller) -> None:
    logger = Logger(tell, "mlflow")
    client: Any = sys.modules["mlflow.tracking.client"]
    client = client.MlflowClient
    if not all(logger.knows(getattr(client, name), *known) for name, known in _METHODS.items()):
        return
    listener = Listener(logger)
    for name in _METHODS:
        tell.replace(name, [client], logger.noting(getattr(listener, name)))


class Listener:
    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._at_zero: set[tuple[str, str]] = set()

    def log_metric(
        self, client: Any, run_id: Any, key: Any, value: Any, timestamp: Any = None,
        step: Any = None, *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        self._logger.row({key: value}, self._step(run_id, key, step))

    def log_param(self, client: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
        self._logger.config({key: value})

    def log_batch(
        self,
        client: Any,
        run_id: Any,
        metrics: Iterable[Any] = (),
        params: Iterable[Any] = (),
        *_: Any,
        **__: Any,
    ) -> None:
        rows: dict[Any, dict[str, Any]] = {}
        for metric in metrics or ():
            step = self._step(run_id, metric.key, metric.step)
            rows.setdefault(step, {})[metric.key] = metric.value
        for step, row in rows.items():
            self._logger.row(row, step)
        if params:
            self._logger.config({param.key: param.value for param in params})

    def _step(self, run_id: Any, key: Any, step: Any) -> Any:
        if step:
            return step
        place = (str(run_id), str(key))
        if place in self._at_zero:
            return None
        self._at_zero.add(place)
        return step
