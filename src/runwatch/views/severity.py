"""How loud an incident is: one table of what was seen and how long nothing moved.

`note`: shown, and no alarm.  `warning`: somebody should look.  `incident`: the run stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from runwatch.record.stacks import Severity
from runwatch.views.pace import Limits, nanoseconds

Bearing = Literal["stuck", "unsure", "busy", "idle"]
"""How ranks without progress look.  stuck: they wait in vain.  unsure: their stacks do not decide.
busy: they work, or do something that may take long.  idle: a prompt waits for a person."""

Seconds = Callable[[Limits], float]


@dataclass(frozen=True, slots=True)
class Rises:
    """Seconds after the stall's limit; None: never."""

    warning: Seconds | None
    incident: Seconds | None


TABLE: Final[Mapping[Bearing, Rises]] = {
    "stuck": Rises(lambda limits: 0.0, lambda limits: limits.doubt_seconds),
    "unsure": Rises(lambda limits: limits.doubt_seconds, lambda limits: limits.patience_seconds),
    "busy": Rises(
        lambda limits: limits.patience_seconds, lambda limits: 3 * limits.patience_seconds
    ),
    "idle": Rises(None, None),
}
"""With the usual limits.  stuck: a warning at once, an incident after a minute.  unsure: after one
and ten minutes.  busy: after ten and thirty minutes."""


def severity(bearing: Bearing, past_limit_ns: int, limits: Limits) -> Severity:
    """`past_limit_ns`: how long the stall has lasted beyond its limit."""
    loudest: Severity = "note"
    for name, time_ns in _rises(bearing, limits):
        if past_limit_ns >= time_ns:
            loudest = name
    return loudest


def next_rise_ns(bearing: Bearing, past_limit_ns: int, limits: Limits) -> int | None:
    """How long until the incident becomes louder if nothing changes; None: it does not."""
    later = [t - past_limit_ns for _, t in _rises(bearing, limits) if t > past_limit_ns]
    return min(later, default=None)


def _rises(bearing: Bearing, limits: Limits) -> list[tuple[Severity, int]]:
    rises = TABLE[bearing]
    steps: list[tuple[Severity, int]] = []
    if rises.warning is not None:
        steps.append(("warning", nanoseconds(rises.warning(limits))))
    if rises.incident is not None:
        steps.append(("incident", nanoseconds(rises.incident(limits))))
    return steps
