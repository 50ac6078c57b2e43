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

MOST_REQUESTS: Final = 40
"""So often a package is taken apart to find the points that are refused.  What is left then counts
as refused, too: a receiver that wants none of it must not be asked for ever."""


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
        if not self._packages:
            self._packages.extend(packages(self._next(), self._receiver.package_points))
        if not self._packages:
            self._waiting_since_ns = None
            self._backlog.save(self._sent, self._lost)
            return False
        package = self._packages[0]
        refused, why = self._send(package)
        self._packages.popleft()
        self._backlog.sent(package)
        self._sent += points_in(package) - refused
        self._lost += refused
        self._lost_why = why or self._lost_why
        self._backlog.save(self._sent, self._lost)
        return True

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

    def _send(self, package: Sequence[Gauge]) -> tuple[int, str]:
        """How many points were refused for good, and why the last of them."""
        left, refused, why = [list(package)], 0, ""
        for _ in range(MOST_REQUESTS):
            if not left:
                break
            part = left.pop()
            try:
                taken = self._receiver.send(part)
                refused, why = refused + taken.refused, taken.why or why
            except NotWanted as error:
                if points_in(part) > 1:
                    left += reversed(_halves(part))
                else:
                    refused, why = refused + 1, str(error)
        return refused + sum(map(points_in, left)), why


def _halves(part: Sequence[Gauge]) -> list[list[Gauge]]:
    if len(part) == 1:
        return [[half] for half in part[0].halves()]
    middle = len(part) // 2
    return [list(part[:middle]), list(part[middle:])]
