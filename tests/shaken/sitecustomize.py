"""Makes every Python process on whose path it lies (`make shake`) a little late, by lot.

A process starts late, a new thread comes to its work late, whoever is waited for says so late, a
file is renamed late, an event loop takes its time.  Nothing of that is wrong, so whatever goes
wrong then does so on a busy machine, too, once in a thousand times.

The lots come from a seed (SHAKEN), the test that runs, and the command of the process, so the same
seed makes the same test late at the same places, whichever worker runs it and whatever ran before.
Which of two threads draws first, the machine decides.
"""

from __future__ import annotations

import asyncio.base_events
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_sleep = time.sleep
_lot = random.Random()
_test = ""
# Where tests keep their files and which ports they use differs between runs.
_command = re.sub(r"\S*/|\d{4,}", "", " ".join(sys.orig_argv))


def _begin(test: str) -> None:
    global _test
    _test = test
    words = (os.environ.get("SHAKEN"), test, _command, os.environ.get("RANK"))
    _lot.seed(" ".join(map(str, words)))


# Each child draws lots of its own; its parent draws one for it.
os.register_at_fork(before=_lot.random, after_in_child=lambda: _lot.seed(f"child {_lot.random()}"))


def linger(chance: float, seconds: float) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "none")
    if test != _test:
        _begin(test)
    if _lot.random() < chance:
        _sleep(_lot.random() * seconds)


def late(real: Callable[..., Any], chance: float, seconds: float) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        linger(chance, seconds)
        return real(*arguments, **named)

    return call


def _first_thing(*_: Any) -> None:
    """In a new thread; unlike a wrapper it leaves no frame in the thread's stack."""
    sys.setprofile(None)
    linger(0.3, 0.15)


threading.setprofile(_first_thing)
threading.Condition.notify = late(threading.Condition.notify, 0.1, 0.05)  # type: ignore[method-assign]
asyncio.base_events.BaseEventLoop._run_once = late(  # type: ignore[attr-defined]
    asyncio.base_events.BaseEventLoop._run_once,  # type: ignore[attr-defined]
    0.02,
    0.03,
)
for _name in ("replace", "rename", "unlink", "fsync"):
    setattr(os, _name, late(getattr(os, _name), 0.15, 0.05))
linger(0.3, 0.4)
