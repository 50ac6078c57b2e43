"""What the account of a run's time knows by name.

A span of one of these kinds is counted in the class of that name; any other name is a class of its
own, under exactly the name it was given.  Nothing is guessed: "eval" is not "evaluation".
"""

from __future__ import annotations

from typing import Final, get_args

from runwatch.views.goodput.classes import Kind as Kind

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

DATA_LOADING: Final = "data_loading"
CHECKPOINT_SAVE: Final = "checkpoint_save"
CHECKPOINT_RESTORE: Final = "checkpoint_restore"
COMPILE: Final = "compile"

BACKGROUND: Final = "/background"
"""Ends the name of a stretch in a thread other than the one that takes the steps: it ran beside
them, so none of the run's time was spent on it."""

USEFUL: Final = "/useful"
"""Ends the name of a stretch whose time is the run's purpose though it is no step (the rollouts of
reinforcement learning): it counts as productive."""

ELAPSED: Final = "elapsed"
"""The event that stands for a stretch known only at its end: `{"name": kind, "seconds": …}` at that
end, the same as a span from that much earlier."""
