"""How long a step may take before a person would say that the run stands still.

There is one rule: a pause longer than `stall_ns` is a stall.  `diagnosis/progress.py` applies it
while a run goes on, `goodput/` when the time is accounted for afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAUSE_MARGIN: Final = 1.5
"""A pause may last this much longer than the longest one after which the run went on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is too long."""

    factor: float = 5.0
    """A pause may be this many times the usual step."""
    floor_seconds: float = 10.0
    """A pause may always be this long, however short the steps are."""
    span_floor_seconds: float = 600.0
    """The same for spans that are known to take long, and for spans that were never seen to end."""
    start_seconds: float = 900.0
    """The limit until a rank has taken three steps."""
    silence_seconds: float = 45.0
    """A rank that is known to send heartbeats is out of reach, not stalled, after this long
    without."""
    doubt_seconds: float = 60.0
    """A stall whose stacks do not decide is in doubt for this long (`severity.py`)."""
    patience_seconds: float = 600.0
    """A compile, a checkpoint, an evaluation or other work may take this long."""


LIMITS: Final = Limits()


def stall_ns(usual_ns: int, longest_pause_ns: int = 0, limits: Limits = LIMITS) -> int:
    """The limit from one step to the next while no span is open.  A longer pause is a stall.

    `usual_ns` is the most that a step of this run usually takes.  `longest_pause_ns` is the longest
    pause after which the run went on.
    """
    pause_ns = min(longest_pause_ns * PAUSE_MARGIN, nanoseconds(limits.span_floor_seconds))
    return int(max(nanoseconds(limits.floor_seconds), limits.factor * usual_ns, pause_ns))


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
