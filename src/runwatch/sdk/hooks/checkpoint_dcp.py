"""torch.distributed.checkpoint: `save`, the blocking part of `async_save`, and `load`.

The work of `async_save` after it has returned runs beside the steps, and is recorded as such.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

PACKAGE: Final = "torch.distributed.checkpoint"
_CALLS: Final = (
    ("save", "state_dict_saver", CHECKPOINT_SAVE),
    ("async_save", "state_dict_saver", CHECKPOINT_SAVE),
    ("save_state_dict", "state_dict_saver", CHECKPOINT_SAVE),
    ("load", "state_dict_loader", CHECKPOINT_RESTORE),
    ("load_state_dict", "state_dict_loader", CHECKPOINT_RESTORE),
)


def install(tell: Teller) -> None:
    package = sys.modules[PACKAGE]
    for name, home, kind in _CALLS:
        if name in vars(package):  # versions differ
            places = [package, sys.modules[f"{PACKAGE}.{home}"]]
            tell.replace(name, places, partial(tell.spanned, kind))
