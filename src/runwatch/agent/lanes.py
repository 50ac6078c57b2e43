"""A thread for each device collector, because a collector may hang.

A call into a driver may never return, when a board has failed or the driver is wedged.  Then only
its thread waits: the other collectors go on, processes are watched, journals are shipped, and the
book records which collector is stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from runwatch.agent.collectors.base import DeviceCollector, Notice
from runwatch.clock import Clock, every
from runwatch.record.node import CollectorResumed, CollectorStuck

STUCK_SECONDS: Final = 15.0
RETRY_SECONDS: Final = 60.0
END_SECONDS: Final = 2.0


class Source(NamedTuple):
    """One kind of device, and how to learn whether the host has any."""

    name: str
    present: Callable[[], bool]
    """Must cost next to nothing, as a look into /dev does."""
    open: Callable[[], Sequence[DeviceCollector]]


class Edge(Protocol):
    """Calls a collector for a lane, and catches everything: none of these methods raises."""

    def open(self, source: Source) -> Sequence[DeviceCollector]: ...
    def round(self, collector: DeviceCollector, late_seconds: float) -> None: ...
    def close(self, collector: DeviceCollector) -> None: ...


class Lane:
    """One collector and its thread."""

    def __init__(
        self, collector: DeviceCollector, edge: Edge, *, stop: threading.Event, clock: Clock
    ) -> None:
        self.name = collector.name
        self._collector = collector
        self._edge = edge
        self._stop = stop
        self._clock = clock
        self._watch = StuckWatch(collector.name, clock)

    def run(self) -> None:
        period = self._collector.period_seconds
        for tick in every(period, until=self._stop.wait, clock=self._clock):
            with self._watch:
                self._edge.round(self._collector, tick.late_seconds)
        with self._watch:
            self._edge.close(self._collector)

    def news(self) -> Iterator[Notice]:
        return self._watch.news()


class StuckWatch:
    """Entered around a call that may hang.  Another thread calls `news`."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._since_ns: int | None = None
        self._is_told = False

    def __enter__(self) -> None:
        self._since_ns = self._clock.mono_ns()

    def __exit__(self, *error: object) -> None:
        self._since_ns = None

    def news(self) -> Iterator[Notice]:
        """A notice when the call hangs, and one when it has returned; each once."""
        since = self._since_ns
        seconds = 0.0 if since is None else (self._clock.mono_ns() - since) / 1e9
        is_stuck = seconds > STUCK_SECONDS
        if is_stuck and not self._is_told:
            yield Notice("", CollectorStuck(self._name, round(seconds, 1)))
        elif self._is_told and not is_stuck:
            yield Notice("", CollectorResumed(self._name))
        self._is_told = is_stuck


class Lanes:
    """All lanes.  Opening a library may hang too, so a thread also opens each source."""

    def __init__(self, sources: Sequence[Source], edge: Edge, *, clock: Clock) -> None:
        self._sources = sources
        self._edge = edge
        self._clock = clock
        self._stop = threading.Event()
        self._watches: dict[str, StuckWatch] = {s.name: StuckWatch(s.name, clock) for s in sources}
        self._lanes: dict[str, list[Lane]] = {source.name: [] for source in sources}
        self._threads: dict[str, list[threading.Thread]] = {source.name: [] for source in sources}
        self._tried_ns: dict[str, int] = {}

    def look(self) -> list[Notice]:
        """Start lanes for devices that have appeared; return news of those that hang."""
        for source in self._sources:
            if self._is_to_be_tried(source) and source.present():
                self._threads[source.name] = []
                self._lanes[source.name] = []
                self._start(source.name, source.name, partial(self._begin, source))
        news = [notice for watch in self._watches.values() for notice in watch.news()]
        for lanes in self._lanes.values():
            news += [notice for lane in lanes for notice in lane.news()]
        return news

    def stop(self) -> None:
        """Waits a little.  A thread that hangs in a driver is left: it ends with the process."""
        self._stop.set()
        deadline = self._clock.mono_ns() + int(END_SECONDS * 1e9)
        for thread in [thread for some in self._threads.values() for thread in some]:
            thread.join(timeout=max(0.0, (deadline - self._clock.mono_ns()) / 1e9))

    def _is_to_be_tried(self, source: Source) -> bool:
        now, tried = self._clock.mono_ns(), self._tried_ns.get(source.name)
        if tried is not None and now - tried < RETRY_SECONDS * 1e9:
            return False
        self._tried_ns[source.name] = now
        return not any(thread.is_alive() for thread in self._threads[source.name])

    def _begin(self, source: Source) -> None:
        with self._watches[source.name]:
            collectors = self._edge.open(source)
        lanes = [Lane(c, self._edge, stop=self._stop, clock=self._clock) for c in collectors]
        self._lanes[source.name] = lanes
        for lane in lanes[1:]:
            self._start(source.name, lane.name, lane.run)
        if lanes:
            lanes[0].run()

    def _start(self, source: str, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"runwatch-{name}", daemon=True)
        self._threads[source].append(thread)
        thread.start()
