"""How long a step may take before a person would say that the run stands still.

One rule, for whoever watches a run that goes on (`diagnosis/progress.py`) and for whoever accounts
for its time afterwards (`goodput/`): a pause is a stall when it is longer than `stall_ns` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAUSE_MARGIN: Final = 1.5
"""A pause that went well may take this much longer the next time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is too long."""

    factor: float = 5.0
    """Times the usual."""
    floor_seconds: float = 10.0
    """Never less, however short the steps are."""
    span_floor_seconds: float = 600.0
    """The same for spans that are known to take long, or were never seen to end."""
    start_seconds: float = 900.0
    """Until a rank has taken three steps."""
    silence_seconds: float = 45.0
    """A rank that is known to send heartbeats and sends none is out of reach, not stalled."""
    doubt_seconds: float = 60.0
    """So long a stall whose stacks do not decide is left in doubt (`severity.py`)."""
    patience_seconds: float = 600.0
    """So long a compile, a checkpoint, an evaluation or anything else at work may take."""


LIMITS: Final = Limits()


def stall_ns(usual_ns: int, longest_pause_ns: int = 0, limits: Limits = LIMITS) -> int:
    """From one progress to the next, with no span open: what is longer is a stall.

    `usual_ns` is what a step of this run usually takes at most; `longest_pause_ns` the longest of
    its pauses after which it went on.
    """
    pause_ns = min(longest_pause_ns * PAUSE_MARGIN, nanoseconds(limits.span_floor_seconds))
    return int(max(nanoseconds(limits.floor_seconds), limits.factor * usual_ns, pause_ns))


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
