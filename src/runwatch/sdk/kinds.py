"""The span names that the goodput account knows.

A span of one of these kinds is counted in the class of that name (`Kind` in
`views/goodput/classes.py` has them all).  Any other name is its own class,
under exactly that name.  Nothing is guessed: "eval" is not "evaluation".
"""

from __future__ import annotations

from typing import Final

DATA_LOADING: Final = "data_loading"
CHECKPOINT_SAVE: Final = "checkpoint_save"
CHECKPOINT_RESTORE: Final = "checkpoint_restore"
COMPILE: Final = "compile"
EVALUATION: Final = "evaluation"

BACKGROUND: Final = "/background"
"""Suffix for a stretch in another thread than the one that takes the steps: it ran beside them, so
it took none of the run's time."""

USEFUL: Final = "/useful"
"""Suffix for a stretch whose time serves the run's purpose although it is not a step (the rollouts
of reinforcement learning): it counts as productive."""
