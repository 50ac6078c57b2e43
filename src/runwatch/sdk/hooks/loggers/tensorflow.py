"""TensorFlow's `tf.summary.scalar`, called eagerly with values in host memory.

Inside a `tf.function` a value is not a number yet, and reading one from a device would wait for it:
neither is recorded.  Programs write one name to a folder for training and one for tests, so a
writer's folder is part of the name, as with TensorBoard's own writers.  In a loop of the program's
own, TensorFlow says nothing of a step: the numbers that go with a name count them.
"""

from __future__ import annotations

import sys
from typing import Any, Final
from weakref import WeakKeyDictionary

from runwatch.sdk.guard import text_of
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.loggers.tensorboard import Folders
from runwatch.sdk.hooks.numbered import number
from runwatch.sdk.hooks.teller import Teller

# `import tensorflow.summary` makes a second module of it, with what these have.
_SCALARS: Final = (
    "tensorflow._api.v2.compat.v2.summary", "tensorflow.summary",
    "tensorflow.python.summary.tb_summary",
)  # fmt: skip
_OPS: Final = "tensorflow.python.ops.summary_ops_v2"


def install(tell: Teller) -> None:
    logger = Logger(tell, "tensorflow.summary")
    summary: Any = sys.modules["tensorflow"].summary
    if not logger.knows(summary.scalar, "name", "data", "step"):
        return
    writers, folders = Writers(), Folders()
    writers.listen(tell, logger, summary)

    def scalar(written: Any, name: Any, data: Any, step: Any = None, *_: Any, **__: Any) -> None:
        at = step if step is not None else summary.experimental.get_step()
        value, row = _number(data), _number(at)
        if value is None:
            return
        tag, folder = text_of(name), writers.folder()
        prefix = folders.prefix(folder, tag)
        if row is not None:
            number(tell, f"tensorflow.summary {prefix}{tag}", int(row), of_loop=True)
        taken = _number(written)
        if taken is not None and not taken:
            return  # no writer, or `record_if` says no: Keras throttles what it writes like that
        logger.row({tag: value}, None if row is None else int(row), prefix, counts=False)

    places = [summary, *(sys.modules[name] for name in _SCALARS if name in sys.modules)]
    tell.replace("scalar", places, logger.noting(scalar, result=True))


class Writers:
    """Which folder each of TensorFlow's writers writes to."""

    def __init__(self) -> None:
        self._folders: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def listen(self, tell: Teller, logger: Logger, summary: Any) -> None:
        ops = sys.modules.get(_OPS)
        for place, name in ((summary, "create_file_writer"), (ops, "create_file_writer_v2")):
            if name in vars(place or object):
                tell.replace(name, [place], logger.noting(self._made, result=True))

    def _made(self, writer: Any, logdir: Any = "", *_: Any, **__: Any) -> None:
        self._folders[writer] = text_of(logdir)

    def folder(self) -> str:
        """Of the writer that takes what is written now; "" if that is not known."""
        state = getattr(sys.modules.get(_OPS), "_summary_state", None)
        writer = getattr(state, "writer", None)
        return "" if writer is None else self._folders.get(writer, "")


def _number(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if not hasattr(value, "numpy"):
        return value if hasattr(type(value), "__float__") else None  # a scalar of NumPy's
    place = text_of(getattr(value, "device", "") or "")
    if place and "CPU" not in place.upper():
        return None
    return value.numpy()
