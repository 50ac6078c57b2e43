"""torch.distributed: a process that joins others in a job is part of a run, before it trains.

So a rank is seen that waits for the others in vain.  If the environment does not say which rank it
is, that is known only when they have met.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE: Final = "torch.distributed"
MEET: Final = "init_process_group"


def install(tell: Teller) -> None:
    package = sys.modules[PACKAGE]
    if MEET in vars(package):  # torch may be built without it
        places = [package, sys.modules[f"{PACKAGE}.distributed_c10d"]]
        tell.replace(MEET, places, partial(_around, tell))


def _around(tell: Teller, function: Callable[P, R]) -> Callable[P, R]:
    @guarded("note that ranks meet", quiet=True)
    def note() -> None:
        if tell.expects:
            tell.begun()

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "RANK" in os.environ:
            note()
        result = function(*args, **kwargs)
        note()
        return result

    return call
