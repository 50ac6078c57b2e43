"""safetensors: `save_file` and `load_file` of each framework's module.

They are used for checkpoints and for weights that a program starts from.  As with torch.save, a
call counts if it took 50 ms or more in the thread that takes the steps.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from runwatch.sdk.hooks.checkpoint_torch import CHECKPOINT_NS
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

MODULE: Final = "safetensors.torch"
_CALLS: Final = (
    ("save_file", CHECKPOINT_SAVE),
    ("save_model", CHECKPOINT_SAVE),
    ("load_file", CHECKPOINT_RESTORE),
    ("load_model", CHECKPOINT_RESTORE),
)


def install(tell: Teller) -> None:
    module = sys.modules[MODULE]
    for name, kind in _CALLS:
        if name in vars(module):  # versions differ
            tell.replace(name, [module], partial(tell.timed, kind, short_ns=CHECKPOINT_NS))
