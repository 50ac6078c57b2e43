"""How loud an incident is, by what was seen and for how long nothing moved: one table.

`note`: shown, and no alarm.  `warning`: somebody should look.  `incident`: the run stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from runwatch.record.stacks import Severity
from runwatch.views.pace import Limits, nanoseconds

Bearing = Literal["stuck", "unsure", "busy", "idle"]
"""How ranks that make no progress look: stuck; cannot tell; at work, or in what has its time; at
a prompt that waits for a person."""

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
"""With the usual limits: at once and after a minute; a minute and ten; ten minutes and thirty."""


def severity(bearing: Bearing, past_limit_ns: int, limits: Limits) -> Severity:
    """`past_limit_ns`: how long the stall has been one."""
    found: Severity = "note"
    for name, time_ns in _rises(bearing, limits):
        if past_limit_ns >= time_ns:
            found = name
    return found


def next_rise_ns(bearing: Bearing, past_limit_ns: int, limits: Limits) -> int | None:
    """How long until it becomes louder if nothing changes; None: it does not."""
    later = [t - past_limit_ns for _, t in _rises(bearing, limits) if t > past_limit_ns]
    return min(later, default=None)


def _rises(bearing: Bearing, limits: Limits) -> list[tuple[Severity, int]]:
    rises = TABLE[bearing]
    found: list[tuple[Severity, int]] = []
    if rises.warning is not None:
        found.append(("warning", nanoseconds(rises.warning(limits))))
    if rises.incident is not None:
        found.append(("incident", nanoseconds(rises.incident(limits))))
    return found
