"""What a run was told and what it ran on, merged from the config events of all its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.rows import EventRow

PARTS: Final = ("user", "software", "system")


@dataclass(frozen=True, slots=True)
class Configs:
    user: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)


def merge_configs(events: Iterable[EventRow]) -> Configs:
    """Newest wins, key by key in each part; at equal times the lower rank has the last word."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    told = [event for event in events if event.kind == "config"]
    for event in sorted(told, key=lambda event: (event.time_ns, -event.rank)):
        part, values = event.body.get("part"), event.body.get("values")
        if isinstance(part, str) and part in parts and isinstance(values, Mapping):
            parts[part] |= values
    return Configs(**parts)
