"""TensorBoard's writer in PyTorch; `summary_writer` serves the others of the same shape too.

TensorBoard shows folders as separate curves.  So names of a writer whose folder is called train,
val, … begin with that, and names of a second folder begin with its name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from runwatch.sdk.guard import text_of
from runwatch.sdk.hooks.loggers.logged import Logger
from runwatch.sdk.hooks.teller import Teller

_ROLES: Final = ("train", "training", "val", "valid", "validation", "eval", "evaluation", "test")
_NO_NUMBERS: Final = (
    "add_audio", "add_embedding", "add_figure", "add_graph", "add_histogram", "add_image",
    "add_images", "add_mesh", "add_pr_curve", "add_text", "add_video",
)  # fmt: skip
MAX_NAMES: Final = 10_000


def install(tell: Teller) -> None:
    summary_writer(tell, "tensorboard", sys.modules["torch.utils.tensorboard"])


def summary_writer(tell: Teller, name: str, module: Any) -> None:
    """Listen to `SummaryWriter` of this module."""
    logger = Logger(tell, name)
    writer = module.SummaryWriter
    known = ("self", "tag", "scalar_value", "global_step")
    if not logger.knows(writer.add_scalar, *known):
        return
    listener = Listener(logger)
    for method in ("add_scalar", "add_scalars", "add_hparams"):
        note = getattr(listener, method)
        tell.replace(method, [writer], logger.noting(note))
    for method in _NO_NUMBERS:
        if method in vars(writer):
            kind = method.removeprefix("add_")
            tell.replace(method, [writer], logger.noting(_counted(logger, kind)))


def _counted(logger: Logger, kind: str) -> Callable[..., None]:
    return lambda *_, **__: logger.no_number(kind)


class Folders:
    """Which words go before the names of a writer."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        """Name -> the folder that it was first logged to."""

    def prefix(self, folder: str, tag: str) -> str:
        last = os.path.basename(folder.rstrip("/"))
        if last.lower() in _ROLES and not tag.lower().startswith(last.lower()):
            return f"{last}/"
        if len(self._first) < MAX_NAMES:
            self._first.setdefault(tag, folder)
        return "" if not last or self._first.get(tag, folder) == folder else f"{last}/"


class Listener:
    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._folders = Folders()

    def add_scalar(
        self, writer: Any, tag: Any, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
    ) -> None:
        name = text_of(tag)
        prefix = self._folders.prefix(_folder(writer), name)
        self._logger.row({name: scalar_value}, global_step, prefix)

    def add_scalars(
        self, writer: Any, main_tag: Any, tag_scalar_dict: Any, global_step: Any = None,
        *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        if isinstance(tag_scalar_dict, Mapping):
            self._logger.row(dict(tag_scalar_dict), global_step, f"{text_of(main_tag)}/")

    def add_hparams(self, writer: Any, hparam_dict: Any, *_: Any, **__: Any) -> None:
        """Its metrics are told by the writer that it makes for them."""
        self._logger.config(hparam_dict)


def _folder(writer: Any) -> str:
    return text_of(getattr(writer, "log_dir", None) or getattr(writer, "logdir", None) or "")
