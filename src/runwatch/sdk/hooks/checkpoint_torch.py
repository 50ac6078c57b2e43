"""torch.save and torch.load, which are used for checkpoints and for much else.

Taken for a checkpoint is a call that took 50 ms or more, in the thread that takes the steps, of a
mapping or of something with a `state_dict`, other than while a loader is waited for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

CHECKPOINT_NS: Final = 50_000_000


def install(tell: Teller) -> None:
    places = [sys.modules["torch"], sys.modules["torch.serialization"]]
    timed = partial(tell.timed, short_ns=CHECKPOINT_NS)
    tell.replace("save", places, partial(timed, CHECKPOINT_SAVE, counts=_saves_state))
    tell.replace("load", places, partial(timed, CHECKPOINT_RESTORE, counts=_loads_state))


def _saves_state(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    return _is_state(args[0] if args else kwargs.get("obj"))


def _loads_state(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    return _is_state(result)


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) or callable(getattr(value, "state_dict", None))
