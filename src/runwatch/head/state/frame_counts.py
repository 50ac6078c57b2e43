"""How many frames sessions have: a question that comes often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from runwatch.clock import Clock
from runwatch.exports.fleet import Fleet
from runwatch.exports.frames import MOMENTS, Frames
from runwatch.store.store import Store
from runwatch.views.sessions import Session, Stretch

_LATE_NS: Final = 120 * 10**9
_NEAR_NS: Final = 10 * 10**9
_FRESH_NS: Final = 10**9
_COUNTED_DEVICES: Final = 32
_SPARSE_WINDOWS: Final = 1_000
"""A hostile client may spread its samples over centuries; the count does not go further."""


class _Counted(NamedTuple):
    """Frames from the start to `settled_ns`, kept for good; and to `near_ns`, kept for seconds."""

    settled_ns: int
    settled: int
    near_ns: int
    near: int
    looked_ns: int


class FrameCounts:
    """How many frames sessions have, without reading all of a session each time.

    Some frames are not counted.  In a large fleet only some devices are read.  Samples more than
    ten seconds late count after ten more seconds; samples more than two minutes late count when the
    head starts again.  An export has all frames.
    """

    def __init__(self, store: Store, fleet: Callable[[], Fleet], *, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.Lock()
        self._counted: dict[str, _Counted] = {}
        self._recent: dict[str, tuple[int, tuple[Stretch, ...], int]] = {}

    def of(self, session: Session) -> int:
        with self._lock:
            now_ns = self._clock.mono_ns()
            asked_ns, stretches, count = self._recent.get(session.id, (0, (), 0))
            if stretches != session.stretches or now_ns - asked_ns > _FRESH_NS:
                count = self._count(session)
                self._recent[session.id] = (now_ns, session.stretches, count)
            return count

    def _count(self, session: Session) -> int:
        counted, mono_ns = self._counted.get(session.id), self._clock.mono_ns()
        if counted is None or mono_ns - counted.looked_ns > _NEAR_NS:
            counted = self._counted[session.id] = self._look(session, counted, mono_ns)
        now_ns = self._clock.wall_ns()
        return counted.settled + counted.near + self._frames(session, counted.near_ns, now_ns)

    def _look(self, session: Session, before: _Counted | None, mono_ns: int) -> _Counted:
        now_ns = self._clock.wall_ns()
        start_ns, settled = (before.settled_ns, before.settled) if before else (session.start_ns, 0)
        late_ns = max(start_ns, _boundary(session, now_ns - _LATE_NS))
        near_ns = max(late_ns, _boundary(session, now_ns - _NEAR_NS))
        settled += self._frames(session, start_ns, late_ns)
        near = self._frames(session, late_ns, near_ns)
        return _Counted(late_ns, settled, near_ns, near, mono_ns)

    def _frames(self, session: Session, start_ns: int, end_ns: int) -> int:
        return sum(
            self._between(
                session,
                stretch,
                start_ns,
                end_ns if stretch.end_ns is None else min(end_ns, stretch.end_ns),
            )
            for stretch in session.stretches
        )

    def _between(self, session: Session, stretch: Stretch, start_ns: int, end_ns: int) -> int:
        start_ns = max(start_ns, stretch.start_ns)
        if end_ns <= start_ns:
            return 0
        part = replace(session, stretches=(Stretch(start_ns, end_ns),))
        fleet = self._fleet()
        every = -(-len(fleet.devices) // _COUNTED_DEVICES)
        some = Fleet(fleet.devices[:: max(1, every)], [] if fleet.devices else fleet.hosts)
        frames = Frames(
            self._store,
            some,
            part,
            now_ns=end_ns,
            columns=MOMENTS,
            sparse_windows=_SPARSE_WINDOWS,
        )
        return sum(len(found) for found in frames)


def _boundary(session: Session, at_ns: int) -> int:
    """The last time before that at which no frame is cut in two."""
    for stretch in session.stretches:
        if stretch.start_ns <= at_ns and (stretch.end_ns is None or at_ns < stretch.end_ns):
            return at_ns - (at_ns - stretch.start_ns) % session.period_ns
    return at_ns
