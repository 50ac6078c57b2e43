"""TensorFlow: `tf.train.Checkpoint`, also where a `CheckpointManager` uses it.

A manager's `save` may be called at every step: if it decides not to save, it calls nothing of this.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

_METHODS: Final = (
    ("save", CHECKPOINT_SAVE),
    ("write", CHECKPOINT_SAVE),
    ("_write", CHECKPOINT_SAVE),  # what a manager calls
    ("restore", CHECKPOINT_RESTORE),
    ("read", CHECKPOINT_RESTORE),
)


def install(tell: Teller) -> None:
    train = getattr(sys.modules["tensorflow"], "train", None)
    checkpoint: Any = getattr(train, "Checkpoint", object)
    for name, kind in _METHODS:
        if name in vars(checkpoint):  # versions differ
            tell.replace(name, [checkpoint], partial(tell.spanned, kind))
