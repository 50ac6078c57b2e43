"""What a collector is, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from runwatch.clock import Clock

Targets = Callable[[], Iterable[tuple[int, int, Mapping[str, str]]]]
"""Gives (pid, scope, labels) of every live process of a run."""


class Sample(NamedTuple):
    metric: str
    value: float
    unit: str
    device: str = ""
    labels: Mapping[str, str] = MappingProxyType({})
    scope: int = 0
    """The run it belongs to, in the agent's own journal; 0 is the host itself."""


class Collector(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def period_seconds(self) -> float: ...
    def collect(self) -> Iterable[Sample]: ...


class Rates:
    """Counters in, change per second out; a counter that is new or was reset gives None."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.mono_ns()
        self._last: dict[object, tuple[int, float]] = {}
        self._this: dict[object, tuple[int, float]] = {}

    def begin(self) -> None:
        """A new round: what was not read in the last one is forgotten."""
        self._now = self._clock.mono_ns()
        self._last, self._this = self._this, {}

    def per_second(self, key: object, value: float) -> float | None:
        self._this[key] = (self._now, value)
        before = self._last.get(key)
        if before is None or value < before[1] or self._now <= before[0]:
            return None
        return (value - before[1]) / ((self._now - before[0]) / 1e9)
