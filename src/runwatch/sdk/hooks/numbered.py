"""Steps by what the program numbers: Orbax's `save(step)`, a logger's `step=`.

For loops in JAX and TensorFlow that say nothing else of their steps.  A number that goes up by one,
again and again, counts the loop; a step ends where its number is first said.  If the program counts
epochs so, its steps are epochs.  Numbers that leave some out (a log line every 100 steps) tell
nothing.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, Final
from weakref import WeakKeyDictionary

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.loop import NUMBERED, Loop
from runwatch.sdk.hooks.teller import Teller

ENOUGH: Final = 3
"""So many numbers in a row, each one more than the last."""

_counts: Final[WeakKeyDictionary[Loop, dict[str, tuple[int, int]]]] = WeakKeyDictionary()
"""By loop and who says the numbers: the last one, and how many came in a row."""


def install(tell: Teller) -> None:
    manager: Any = getattr(sys.modules["orbax.checkpoint"], "CheckpointManager", None)
    if manager is None or "should_save" not in vars(manager):  # which `save` asks
        return

    def asked(function: Any) -> Any:
        @wraps(function)
        def should_save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
            number(tell, "orbax", step)
            return function(self, step, *args, **kwargs)

        return should_save

    tell.replace("should_save", [manager], asked)


@guarded("note the number of a step")
def number(tell: Teller, who: str, step: Any, *, of_loop: bool = False) -> None:
    """The program has said this step's number.  `of_loop`: in a loop that has no other numbers."""
    if type(step) is not int or tell.beside or not (of_loop or "jax" in sys.modules):
        return
    tell.begun()
    loop = tell.loop
    if loop is None or loop.explicit or loop.leader not in ("", NUMBERED):
        return
    counts = _counts.setdefault(loop, {})
    last, row = counts.get(who, (step, 0))
    if step == last and row:
        return
    row = row + 1 if step == last + 1 or not row else 1
    counts[who] = step, row
    first = next((name for name, (_, count) in counts.items() if count >= ENOUGH), "")
    if first == who:
        tell.step_ended(NUMBERED, step)
