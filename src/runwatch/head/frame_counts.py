"""How many frames sessions have, asked often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from runwatch.clock import Clock
from runwatch.exports.fleet import Fleet
from runwatch.exports.frames import MOMENTS, Frames
from runwatch.store.store import Store
from runwatch.views.sessions import Session, Stretch

_LATE_NS: Final = 120 * 10**9
_FRESH_NS: Final = 10**9
_COUNTED_DEVICES: Final = 32


class FrameCounts:
    """How many frames sessions have, without reading them whole each time.

    Of a large fleet some devices are counted, so a frame that only others have is not; and what
    comes in more than two minutes late is not, until the head starts again.  An export knows.
    """

    def __init__(self, store: Store, fleet: Callable[[], Fleet], *, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.Lock()
        self._settled: dict[str, tuple[int, int]] = {}
        """Session -> up to when its frames are counted for good, and how many these are."""
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
        now_ns = self._clock.wall_ns()
        done_ns, settled = self._settled.get(session.id, (session.start_ns, 0))
        late_ns = now_ns - _LATE_NS
        recent = 0
        for stretch in session.stretches:
            end_ns = now_ns if stretch.end_ns is None else stretch.end_ns
            periods = max(0, min(late_ns, end_ns) - stretch.start_ns) // session.period_ns
            middle_ns = stretch.start_ns + periods * session.period_ns
            if end_ns <= late_ns:
                middle_ns = end_ns
            settled += self._between(session, stretch, done_ns, middle_ns)
            done_ns = max(done_ns, middle_ns)
            recent += self._between(session, stretch, middle_ns, end_ns)
        self._settled[session.id] = (done_ns, settled)
        return settled + recent

    def _between(self, session: Session, stretch: Stretch, start_ns: int, end_ns: int) -> int:
        start_ns = max(start_ns, stretch.start_ns)
        if end_ns <= start_ns:
            return 0
        part = replace(session, stretches=(Stretch(start_ns, end_ns),))
        fleet = self._fleet()
        every = -(-len(fleet.devices) // _COUNTED_DEVICES)
        some = Fleet(fleet.devices[:: max(1, every)], [] if fleet.devices else fleet.hosts)
        frames = Frames(self._store, some, part, now_ns=end_ns, columns=MOMENTS)
        return sum(len(found) for found in frames)
