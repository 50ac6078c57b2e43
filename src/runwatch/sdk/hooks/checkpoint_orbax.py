"""Orbax: the blocking calls of its checkpointers and its `CheckpointManager`.

A manager's `save` may be called at every step and mostly decides not to save.  So it is recorded
afterwards, if it took long enough.  Writes after `save` has returned happen in Orbax's own threads.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

MANAGER: Final = "CheckpointManager"
_CLASSES: Final = ("Checkpointer", "AsyncCheckpointer", "StandardCheckpointer", MANAGER)


def install(tell: Teller) -> None:
    package = vars(sys.modules["orbax.checkpoint"])
    for name in _CLASSES:
        if name in package:
            _wrap_methods(tell, package[name], surely=name != MANAGER)


def _wrap_methods(tell: Teller, owner: type, *, surely: bool) -> None:
    wrappers = {
        "save": partial(tell.spanned if surely else tell.timed, CHECKPOINT_SAVE),
        "restore": partial(tell.spanned, CHECKPOINT_RESTORE),
        "wait_until_finished": partial(tell.timed, CHECKPOINT_SAVE),
    }
    for method, wrap in wrappers.items():
        if method in vars(owner):  # an inherited one is wrapped where it is defined
            tell.replace(method, [owner], wrap)
