"""TensorFlow's `tf.summary.scalar`, called eagerly with values in host memory.

Inside a `tf.function` a value is not a number yet, and reading one from a device would wait for it:
neither is recorded.
"""

from __future__ import annotations

import sys
from typing import Any

from runwatch.sdk.guard import text_of
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller


def install(tell: Teller) -> None:
    logger = Logger(tell, "tensorflow.summary")
    summary: Any = sys.modules["tensorflow"].summary
    if not logger.knows(summary.scalar, "name", "data", "step"):
        return

    def scalar(written: Any, name: Any, data: Any, step: Any = None, *_: Any, **__: Any) -> None:
        at = step if step is not None else summary.experimental.get_step()
        number, row = _number(data), _number(at)
        if number is not None:
            logger.row({text_of(name): number}, None if row is None else int(row))

    tell.replace("scalar", [summary], logger.noting(scalar, result=True))


def _number(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if not hasattr(value, "numpy"):
        return value if hasattr(type(value), "__float__") else None  # a scalar of NumPy's
    place = text_of(getattr(value, "device", "") or "")
    if place and "CPU" not in place.upper():
        return None
    return value.numpy()
