"""The sessions of one store: start, stop, resume, list.

Each change is one event in the head's own journal, and takes effect once the store has it durably.
A head that is killed at any moment comes back with the sessions that it had.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, RunwatchError, StoreFull
from runwatch.head.ingest import Ingest
from runwatch.head.own_journal import OwnJournal
from runwatch.record import Batch
from runwatch.record.message import Message
from runwatch.record.sessions import (
    SessionClock,
    SessionFile,
    SessionResume,
    SessionStart,
    SessionStop,
)
from runwatch.store.store import OF_EACH, Store
from runwatch.views import sessions as view
from runwatch.views.sessions import Session

CLOCK_STEP_NS: Final = 500_000_000
"""Smaller differences between clocks are not recorded."""


class SessionActive(RunwatchError):
    """A session of that name is already active."""


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The settings of a session that starts now."""

    period_ns: int = view.PERIOD_NS
    bandwidth: bool = True
    nvlink: bool = True


class Sessions:
    """Any thread may call.  Without an ingest, sessions can only be read."""

    def __init__(
        self,
        store: Store,
        ingest: Ingest | None = None,
        *,
        defaults: SessionDefaults | None = None,
        on_stopped: Callable[[Session], None] = lambda _: None,
        clock: Clock = system_clock,
    ) -> None:
        self.store = store
        self.defaults = defaults or SessionDefaults()
        self.on_stopped = on_stopped
        self.folder: Path | None = None
        """Where each session that stops gets a file."""
        self.clock = clock
        self._journal = OwnJournal(ingest, clock=clock)
        self._can_change = ingest is not None
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] | None = None
        self._news = self._seen = 0

    # ── which there are ───────────────────────────────────────────────────────────────────────

    def all(self) -> list[Session]:
        """All sessions, ordered by start."""
        return list(self._known().values())

    def active(self) -> Sequence[Session]:
        return view.active(self._known())

    def find(self, key: str) -> Session:
        found = view.find(self._known(), key)
        if found is None:
            raise NotFound(f"there is no session with id or name {key[:80]!r}")
        return found

    def _known(self) -> Mapping[str, Session]:
        with self._lock:
            return self._folded()

    def stored(self, batches: Sequence[Batch]) -> None:
        """Takes sessions from other journals: they may come with imported samples.  The writer's
        thread calls this, maybe while `_record` waits for it, so there is no lock here."""
        for batch in batches:
            is_own = batch.origin.journal == self._journal.journal
            if not is_own and any(event.kind in view.KINDS for event in batch.events):
                self._news += 1

    def _folded(self) -> dict[str, Session]:
        news = self._news
        if self._sessions is None or not self._can_change or news != self._seen:
            self._sessions = view.fold(
                self.store.events(None, kinds=list(view.KINDS), of_each=OF_EACH)
            )
            self._seen = news
        return self._sessions

    # ── changes ───────────────────────────────────────────────────────────────────────────────

    def start(self, name: str | None = None, metrics: Iterable[str] = ()) -> Session:
        """Starts a session.  Without a name it is named after the time."""
        with self._lock:
            known = self._folded()
            taken = {session.name for session in view.active(known)}
            name = self._new_name(known) if name is None else view.check_name(name)
            if name in taken:
                raise SessionActive(f"a session named {name!r} is already active")
            id = f"{self.clock.wall_ns():x}"
            while id in known:
                id = f"{int(id, 16) + 1:x}"
            start = SessionStart(
                id=id,
                name=name,
                period_ns=self.defaults.period_ns,
                bandwidth=self.defaults.bandwidth,
                nvlink=self.defaults.nvlink,
                metrics=tuple(str(metric)[:200] for metric in metrics)[:100],
            )
            self._record([start])
            return self._folded()[id]

    def _new_name(self, known: Mapping[str, Session]) -> str:
        now = datetime.fromtimestamp(self.clock.wall_ns() / 1e9)
        base = name = f"profiling_{now:%Y%m%d_%H%M%S}"
        used, number = {session.name for session in known.values()}, 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        return name

    def stop(self, name: str | None = None, why: str = "") -> list[Session]:
        """Stops the active session of that name or id, or all.  Returns the stopped sessions."""
        with self._lock:
            chosen = [
                session
                for session in view.active(self._folded())
                if name is None or name in (session.name, session.id)
            ]
            if chosen:
                self._record([*self._stops(chosen, why)])
            stopped = [self._folded()[session.id] for session in chosen]
        for session in stopped:
            self.on_stopped(session)
        return stopped

    def _stops(self, chosen: Sequence[Session], why: str) -> Iterator[Message]:
        for session in chosen:
            yield SessionStop(session.id, session.name, why)
            if self.folder is not None:  # a head that is killed now owes it
                yield SessionFile(session.id, session.name, str(self.folder))

    def saved(self, session: Session, state: str, missing: Sequence[str], later: bool) -> None:
        """Records how the file of a stopped session stands."""
        with self._lock:
            now = self._folded()[session.id]
            if now.saved is not None:
                names = tuple(name[:200] for name in missing)
                self._record([replace(now.saved, state=state, missing=names, later=later)])

    def resume(self, key: str) -> Session:
        """Resumes a stopped session; an active one just goes on."""
        session = self.find(key)
        with self._lock:
            now = self._folded()
            if not now[session.id].is_active:
                if any(other.name == session.name for other in view.active(now)):
                    raise SessionActive(f"another session named {session.name!r} is active")
                self._record([SessionResume(session.id, session.name)])
            return self._folded()[session.id]

    def hear_clocks(self, ahead_ns: Mapping[str, int]) -> None:
        """Records, for the active sessions, how far hosts' clocks are ahead."""
        with self._lock:
            going = view.active(self._folded())
            if not going:
                return
            news = [
                SessionClock(host, ns)
                for host, ns in ahead_ns.items()
                if any(abs(session.clocks.get(host, 0) - ns) > CLOCK_STEP_NS for session in going)
            ]
            if news:
                self._record(news)

    def set_defaults(self, *, bandwidth: bool | None = None, nvlink: bool | None = None) -> None:
        now = self.defaults
        self.defaults = replace(
            now,
            bandwidth=now.bandwidth if bandwidth is None else bandwidth,
            nvlink=now.nvlink if nvlink is None else nvlink,
        )

    def _record(self, messages: Sequence[Message]) -> None:
        """Returns when the store has the event durably, or raises."""
        try:
            rows = self._journal.record(messages)
        except StoreFull:
            self._sessions = None  # the store may still take it: ask the store again
            raise
        self._sessions = view.fold(rows, self._folded())
