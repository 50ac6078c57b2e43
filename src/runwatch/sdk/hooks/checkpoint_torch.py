"""torch.save and torch.load, which are used for checkpoints and for much else.

A call counts as a checkpoint if it took 50 ms or more, in the thread that takes the steps, with a
mapping or an object with a `state_dict`, and not while the program waits for a data loader.
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
