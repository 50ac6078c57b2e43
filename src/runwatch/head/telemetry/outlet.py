"""What one receiver gets, and what becomes of it: the source of a forwarder."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from runwatch.clock import Clock, system_clock
from runwatch.exports.gauges import Gauge, packages, points_in
from runwatch.head.forward.report import Report
from runwatch.head.telemetry.backlog import Backlog
from runwatch.head.telemetry.pulse import Kept
from runwatch.record import RunId

MOST_REFUSALS: Final = 1_000
"""So often packages are taken apart to find the points that are refused.  Then each that is refused
is given up whole: a receiver that wants none of it must not be asked for ever."""


class NotWanted(Exception):
    """The receiver will never take this; others may be fine."""


class Receiver(Protocol):
    to: str
    name: str
    package_points: int
    """The most points of one request."""

    def send(self, gauges: Sequence[Gauge]) -> Taken:
        """Raises `Trouble` (again later) or `NotWanted`."""
        ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Taken:
    refused: int = 0
    why: str = ""


class Outlet:
    """`stored` and `ended` are for other threads; `standing`, too."""

    def __init__(
        self, receiver: Receiver, backlog: Backlog, kept: Kept, *, clock: Clock = system_clock
    ) -> None:
        self._receiver = receiver
        self._backlog = backlog
        self._kept = kept
        self._clock = clock
        self._sent, self._lost = backlog.sent_before, backlog.lost_before
        self._lost_why = ""
        self._packages: deque[list[Gauge]] = deque()
        """Taken, and not sent yet."""
        self._refusals = 0
        self._ended_lock = threading.Lock()
        self._ended: list[RunId] = []
        self._waiting_since_ns: int | None = None
        self.stored = backlog.stored

    def ended(self, run: RunId) -> None:
        """Tell the receiver so, when all its points are there."""
        with self._ended_lock:
            self._ended.append(run)

    # ── the forwarder's ───────────────────────────────────────────────────────────────────────

    def round(self) -> bool:
        """One request."""
        if not self._packages:
            self._refusals = 0
            self._packages.extend(packages(self._next(), self._receiver.package_points))
        has_more = bool(self._packages)
        if has_more:
            self._send(self._packages[0])
        else:
            self._waiting_since_ns = None
        self._backlog.save(self._sent, self._lost)
        return has_more

    def _send(self, package: Sequence[Gauge]) -> None:
        """A receiver that takes all or nothing is asked for each half again, the older one first:
        so only what it really refuses is lost."""
        try:
            taken = self._receiver.send(package)
        except NotWanted as error:
            self._refusals += 1
            if points_in(package) > 1 and self._refusals < MOST_REFUSALS:
                self._packages.popleft()
                self._packages.extendleft(reversed(_halves(package)))
                return
            taken = Taken(points_in(package), str(error))
        self._packages.popleft()
        self._backlog.sent(package)
        self._sent += points_in(package) - taken.refused
        self._lost += taken.refused
        self._lost_why = taken.why or self._lost_why

    def standing(self) -> Report:
        held, lost = list(self._packages), self._lost + self._kept.given_up
        why = self._lost_why
        if self._kept.given_up:
            why = why or "it was away for too long: the oldest states of runs were given up"
        return Report(
            self._receiver.to,
            self._receiver.name,
            sent=self._sent,
            waiting=sum(map(points_in, held)) + self._backlog.waiting + self._kept.count,
            waiting_since_ns=self._waiting_since_ns,
            lost=lost,
            lost_why=why,
        )

    def failed(self) -> None:
        held = [package[0].time_ns[0] for package in list(self._packages)[:1]]
        others = (self._backlog.waits_since_ns(), self._kept.since_ns)
        waiting = [*held, *(at_ns for at_ns in others if at_ns is not None)]
        self._waiting_since_ns = min(waiting, default=None)

    def interrupt(self) -> None:
        self._receiver.interrupt()

    def close(self) -> None:
        self._backlog.save(self._sent, self._lost, now=True)
        self._receiver.close()

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> list[Gauge]:
        """The states of runs that were seen before a page of points go first."""
        points = self._backlog.take()
        if points:
            return self._kept.take(max(gauge.time_ns[-1] for gauge in points)) + points
        states = self._kept.take(self._clock.wall_ns())
        with self._ended_lock:
            ended, self._ended = self._ended, []
        return states + [ending for run in ended for ending in self._backlog.endings(run)]


def _halves(part: Sequence[Gauge]) -> list[list[Gauge]]:
    if len(part) == 1:
        return [[half] for half in part[0].halves()]
    middle = len(part) // 2
    return [list(part[:middle]), list(part[middle:])]
