"""The classes of a run's time, and the spans that claim them.

Inside the fold a class is a small number; everywhere else it is its name.  A span whose name is not
in `SPAN_CLASSES` is a class of its own, `custom:<name>`.  `looks.py` has the words and colours of
the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Literal


class Spent(IntEnum):
    """The classes that rules know.  Numbers from `FIRST_CUSTOM` on are custom spans."""

    PRODUCTIVE = 0
    PROGRAM_STARTUP = 1
    ACCELERATOR_INIT = 2
    TRAINING_PREPARATION = 3
    DATA_LOADING = 4
    CHECKPOINT_SAVE = 5
    CHECKPOINT_RESTORE = 6
    EVALUATION = 7
    WASTED_PROGRESS = 8
    INFRASTRUCTURE_RECOVERY = 9
    STALL = 10
    SLOW_STEPS = 11
    DEGRADED_CAPACITY = 12
    EXCLUDED = 13
    ELASTIC_SLICE_DOWN = 14
    ELASTIC_SCALE_UP = 15
    ELASTIC_REINITIALIZATION = 16
    UNATTRIBUTED = 17
    SCHEDULING_WAIT = 18
    POD_STARTUP = 19


FIRST_CUSTOM: Final = len(Spent)
MOST_CLASSES: Final = 250
"""A class fits in a byte.  Custom names beyond this many share one class."""
OTHER_CUSTOM: Final = "other"
_ELASTIC: Final = frozenset(
    (Spent.ELASTIC_SLICE_DOWN, Spent.ELASTIC_SCALE_UP, Spent.ELASTIC_REINITIALIZATION)
)

WORK: Final = (Spent.PRODUCTIVE, Spent.DEGRADED_CAPACITY)
"""Time in which steps are worked on.  It is wasted if the steps are done again."""
RECOVERY: Final = (
    Spent.INFRASTRUCTURE_RECOVERY, Spent.SCHEDULING_WAIT, Spent.POD_STARTUP,
)  # fmt: skip
"""Time in which a run has to wait for what it runs on."""

Kind = Literal[
    "accelerator_init",
    "training_preparation",
    "data_loading",
    "checkpoint_save",
    "checkpoint_restore",
    "evaluation",
    "compile",
    "elastic_slice_down",
    "elastic_scale_up",
    "elastic_reinitialization",
]
"""Span names with a fixed meaning."""
SPAN_CLASSES: Final[Mapping[str, int]] = {
    "compile": Spent.PROGRAM_STARTUP,
    "accelerator_init": Spent.ACCELERATOR_INIT,
    "training_preparation": Spent.TRAINING_PREPARATION,
    "data_loading": Spent.DATA_LOADING,
    "checkpoint_save": Spent.CHECKPOINT_SAVE,
    "checkpoint_restore": Spent.CHECKPOINT_RESTORE,
    "evaluation": Spent.EVALUATION,
    "elastic_slice_down": Spent.ELASTIC_SLICE_DOWN,
    "elastic_scale_up": Spent.ELASTIC_SCALE_UP,
    "elastic_reinitialization": Spent.ELASTIC_REINITIALIZATION,
}
"""The class of each such name."""


def is_elastic(spent: int) -> bool:
    return spent in _ELASTIC


def is_custom(spent: int) -> bool:
    return spent >= FIRST_CUSTOM


class ClassNames:
    """The numbers and names of the classes of one run.  Custom classes are numbered as they
    appear."""

    def __init__(self, custom: tuple[str, ...] = ()) -> None:
        self._numbers: dict[str, int] = {}
        for name in custom:
            self.of_span(name)

    def of_span(self, name: str) -> int:
        known = SPAN_CLASSES.get(name)
        if known is None:
            known = self._numbers.get(name)
        if known is not None:
            return known
        if FIRST_CUSTOM + len(self._numbers) >= MOST_CLASSES and name != OTHER_CUSTOM:
            return self.of_span(OTHER_CUSTOM)
        return self._numbers.setdefault(name, FIRST_CUSTOM + len(self._numbers))

    @property
    def custom(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def __len__(self) -> int:
        return FIRST_CUSTOM + len(self._numbers)

    def name(self, spent: int) -> str:
        if spent < FIRST_CUSTOM:
            return Spent(spent).name.lower()
        return f"custom:{self.custom[spent - FIRST_CUSTOM]}"
