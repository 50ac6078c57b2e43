"""Sessions: a name, and the stretches of time that it covers.

A session holds no samples.  What was recorded in its time is in it, whoever recorded it, so
sessions may overlap, cost nothing, and outlive any process: they are folded from five kinds of
events, each of which is a whole fact.

session_start   {id, name, period_ns, bandwidth, nvlink, metrics}
session_stop    {id, name, why}
session_resume  {id, name}
session_clock   {host, ahead_ns}: that host's clock was so far ahead of the head's
session_file    {id, name, folder, state, missing, later}: how its file stands
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from runwatch.errors import UsageError
from runwatch.record.sessions import (
    SessionClock,
    SessionFile,
    SessionResume,
    SessionStart,
    SessionStop,
)
from runwatch.rows import EventRow

KINDS: Final = (
    SessionStart.KIND,
    SessionStop.KIND,
    SessionResume.KIND,
    SessionClock.KIND,
    SessionFile.KIND,
)

LONGEST_NAME: Final = 200
_LONGEST_FILE: Final = 240
"""In bytes: every file system takes such a name, even with a suffix."""
PERIOD_NS: Final = 1_000_000_000


class BadName(UsageError):
    pass


@dataclass(frozen=True, slots=True)
class Stretch:
    start_ns: int
    end_ns: int | None = None
    """None while the session goes on."""


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    name: str
    stretches: tuple[Stretch, ...]
    """Ascending; more than one when the session was stopped and resumed."""
    period_ns: int = PERIOD_NS
    """The intended time between two frames."""
    bandwidth: bool = True
    nvlink: bool = True
    metrics: tuple[str, ...] = ()
    """The metrics that were asked for by name.  The others are kept too."""
    clocks: Mapping[str, int] = field(default_factory=dict)
    """Host -> how many nanoseconds its clock is ahead of the head's."""
    saved: SessionFile | None = None
    """How its file stands; None: it has none, or the session goes on."""

    @property
    def start_ns(self) -> int:
        return self.stretches[0].start_ns

    @property
    def end_ns(self) -> int | None:
        return self.stretches[-1].end_ns

    @property
    def is_active(self) -> bool:
        return self.end_ns is None

    @property
    def file(self) -> str:
        return f"{self.name}.json"


def check_name(name: str) -> str:
    """The name, if a file may have it.  Otherwise BadName says what is wrong with it."""
    if not name or not name.strip():
        raise BadName("a session needs a name that is not empty")
    if len(name) > LONGEST_NAME or len(name.encode("utf-8", "replace")) > _LONGEST_FILE:
        raise BadName(
            f"a session's name may have {LONGEST_NAME} characters; this one has {len(name)}"
        )
    if ".." in name or name.startswith(".") or set(name) & set("/\\") or not name.isprintable():
        raise BadName(
            f"{name[:80]!r} cannot name a session: it may hold no '/', '\\', '..' or control "
            "character, and not begin with a dot"
        )
    return name


def fold(
    events: Iterable[EventRow], known: Mapping[str, Session] | None = None
) -> dict[str, Session]:
    """Sessions by id, in the order of their starts.  Events that contradict the rest change
    nothing."""
    sessions = dict(known or {})
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.kind == SessionClock.KIND:
            _know_clock(sessions, SessionClock.of(event.body))
        elif event.kind == SessionStart.KIND:
            _begin(sessions, event.time_ns, SessionStart.of(event.body))
        elif event.kind == SessionStop.KIND:
            _stop(sessions, event.time_ns, SessionStop.of(event.body))
        elif event.kind == SessionResume.KIND:
            _resume(sessions, event.time_ns, SessionResume.of(event.body))
        elif event.kind == SessionFile.KIND:
            _save(sessions, SessionFile.of(event.body))
    return sessions


def _begin(sessions: dict[str, Session], time_ns: int, start: SessionStart) -> None:
    if start.id and start.name and start.id not in sessions:
        sessions[start.id] = Session(
            start.id,
            start.name,
            (Stretch(time_ns),),
            start.period_ns or PERIOD_NS,
            start.bandwidth,
            start.nvlink,
            start.metrics,
        )


def _stop(sessions: dict[str, Session], time_ns: int, stop: SessionStop) -> None:
    session = sessions.get(stop.id)
    if session is not None and session.is_active:
        *before, last = session.stretches
        last = Stretch(last.start_ns, max(last.start_ns, time_ns))
        sessions[session.id] = replace(session, stretches=(*before, last))


def _resume(sessions: dict[str, Session], time_ns: int, resume: SessionResume) -> None:
    session = sessions.get(resume.id)
    if session is not None and not session.is_active:
        last = session.stretches[-1]
        again = Stretch(max(time_ns, last.end_ns or 0))
        stretches = (*session.stretches, again)
        sessions[session.id] = replace(session, stretches=stretches, saved=None)


def _save(sessions: dict[str, Session], file: SessionFile) -> None:
    session = sessions.get(file.id)
    if session is not None and not session.is_active:
        sessions[session.id] = replace(session, saved=file)


def _know_clock(sessions: dict[str, Session], clock: SessionClock) -> None:
    for session in sessions.values():
        if session.is_active:
            clocks = {**session.clocks, clock.host: clock.ahead_ns}
            sessions[session.id] = replace(session, clocks=clocks)


def find(sessions: Mapping[str, Session], key: str) -> Session | None:
    """The session with this id, or else the newest with this name."""
    if key in sessions:
        return sessions[key]
    return next((s for s in reversed(list(sessions.values())) if s.name == key), None)


def active(sessions: Mapping[str, Session]) -> Sequence[Session]:
    return [session for session in sessions.values() if session.is_active]
