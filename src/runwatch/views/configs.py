"""The settings of a run and what it ran on, merged from the config events of all its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.record.life import Config
from runwatch.rows import EventRow

PARTS: Final = ("user", "software", "system")


@dataclass(frozen=True, slots=True)
class Configs:
    user: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)


def merge_configs(events: Iterable[EventRow]) -> Configs:
    """The newest value of each key wins.  At equal times the lower rank's value wins."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    configs = [event for event in events if event.kind == Config.KIND]
    for event in sorted(configs, key=lambda event: (event.time_ns, -event.rank)):
        config = Config.of(event.body)
        if config.part in parts:
            parts[config.part] |= config.values
    return Configs(**parts)
