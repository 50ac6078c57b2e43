"""TensorBoard's own writer, `tensorboard.summary.Writer`."""

from __future__ import annotations

import sys
from typing import Any

from runwatch.sdk.guard import text_of
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.loggers.tensorboard import Folders
from runwatch.sdk.hooks.teller import Teller


def install(tell: Teller) -> None:
    logger = Logger(tell, "tensorboard.summary")
    writer: Any = getattr(sys.modules["tensorboard.summary"], "Writer", None)
    if writer is None or not logger.knows(writer.add_scalar, "self", "tag", "data", "step"):
        return
    folders = Folders()

    def add_scalar(writer: Any, tag: Any, data: Any, step: Any, **_: Any) -> None:
        folder = text_of(getattr(getattr(writer, "_output", None), "path", ""))
        logger.row({text_of(tag): data}, step, folders.prefix(folder, text_of(tag)))

    tell.replace("add_scalar", [writer], logger.noting(add_scalar))
