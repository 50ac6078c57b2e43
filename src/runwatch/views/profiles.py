"""Profile sessions: one capture, on however many processes, as one thing.

Each process tells of its own part in two events of kind `profile`, one when it begins and one when
it ends; sessions are folded from those.  `profile_deleted` {run, session}, which a head writes,
forgets what was told before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from runwatch import profile_event
from runwatch.errors import UsageError
from runwatch.profile_event import DONE, FAILED, PROFILE, STARTED
from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow
from runwatch.views.runs import ProcessState

DELETED: Final = "profile_deleted"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_ENDED: Final = "the process ended meanwhile"
_SILENT: Final = "the process was not heard of again"

State = Literal["running", "done", "failed", "partial"]
_STATES: Final[Mapping[str, State]] = {STARTED: "running", DONE: "done", FAILED: "failed"}
Key = tuple[RunId, str]
"""A run, and the id of a session of it."""


class BadSession(UsageError):
    pass


def is_safe(name: str) -> bool:
    """Whether a folder may be called so."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def check_session(name: str) -> str:
    if not is_safe(name):
        raise BadSession(
            f"{name[:80]!r} cannot name a profile session: 1 to 128 letters, digits, '.', '_' and "
            "'-', the first a letter or digit, and no '..'"
        )
    return name


@dataclass(frozen=True, slots=True)
class Part:
    """What one process captured."""

    journal: JournalId
    host: str
    rank: int
    framework: str
    state: State
    why: str
    files: tuple[str, ...]
    directory: str
    """Where they are, as the process that wrote them names it."""
    bytes: int
    start_ns: int
    end_ns: int | None
    first_step: int | None
    last_step: int | None
    origin: str
    command: str
    told_ns: int


@dataclass(frozen=True, slots=True)
class Session:
    run: RunId
    id: str
    parts: tuple[Part, ...]
    """By rank."""

    @property
    def state(self) -> State:
        states = {part.state for part in self.parts}
        if "running" in states:
            return "running"
        return states.pop() if len(states) == 1 else "partial"

    @property
    def why(self) -> str:
        """What went wrong, each cause once, with the ranks that it befell."""
        ranks: dict[str, list[int]] = {}
        for part in self.parts:
            if part.why:
                ranks.setdefault(part.why, []).append(part.rank)
        return "; ".join(f"{_ranks(hit)}: {why}" for why, hit in ranks.items())

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({part.host for part in self.parts if part.host}))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({part.rank for part in self.parts}))

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(sorted({part.framework for part in self.parts if part.framework}))

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted({name for part in self.parts for name in part.files}))

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.directory for part in self.parts if part.directory))

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def start_ns(self) -> int:
        return min(part.start_ns for part in self.parts)

    @property
    def end_ns(self) -> int | None:
        """None while any part goes on."""
        ends = [part.end_ns for part in self.parts]
        return None if self.state == "running" else max(end for end in ends if end is not None)

    @property
    def first_step(self) -> int | None:
        return min((p.first_step for p in self.parts if p.first_step is not None), default=None)

    @property
    def last_step(self) -> int | None:
        return max((p.last_step for p in self.parts if p.last_step is not None), default=None)

    @property
    def origin(self) -> str:
        return next((part.origin for part in self.parts if part.origin), "")


def _ranks(hit: list[int]) -> str:
    shown = ", ".join(map(str, sorted(set(hit))[:8])) + (" …" if len(set(hit)) > 8 else "")
    return f"rank{'s' if len(set(hit)) > 1 else ''} {shown}"


def gone_of(states: Iterable[ProcessState]) -> dict[JournalId, str]:
    """Journals of processes that tell nothing any more, and why: a host that fell silent may have
    ended them or not."""
    return {
        state.journal: _SILENT if state.state == "lost" else _ENDED
        for state in states
        if state.state != "running"
    }


def fold(
    events: Iterable[EventRow], gone: Mapping[JournalId, str] | None = None
) -> dict[Key, Session]:
    """Sessions in the order in which they began.

    What processes that are `gone` began and did not end, failed.  What makes no sense is left out.
    """
    parts: dict[Key, dict[tuple[str, int, str], Part]] = {}
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.kind == DELETED:
            key = RunId(str(event.body.get("run", ""))), str(event.body.get("session", ""))
            parts.pop(key, None)
        elif event.kind == PROFILE and (part := _part(event)) is not None:
            _tell(parts.setdefault((_run(event), str(event.body["session"])), {}), part)
    made = (_session(key, told, gone or {}) for key, told in parts.items())
    return {(s.run, s.id): s for s in sorted(made, key=lambda s: (s.start_ns, s.run, s.id))}


def _run(event: EventRow) -> RunId:
    """Programs that are of no run are told of under a name of their own."""
    named = event.body.get("run")
    has_name = not event.run and isinstance(named, str) and is_safe(named)
    return RunId(str(named)) if has_name else event.run


def _session(key: Key, told: Mapping[Any, Part], gone: Mapping[JournalId, str]) -> Session:
    parts = [_broken_off(part, gone.get(part.journal, "")) for part in told.values()]
    return Session(*key, tuple(sorted(parts, key=lambda part: (part.rank, part.host))))


def _broken_off(part: Part, why: str) -> Part:
    if part.state != "running" or not why:
        return part
    return replace(part, state="failed", why=why, end_ns=part.told_ns)


def _tell(known: dict[tuple[str, int, str], Part], part: Part) -> None:
    key = part.journal, part.rank, part.framework
    before = known.get(key)
    if before is not None:
        part = replace(
            part,
            files=tuple(dict.fromkeys(before.files + part.files)),
            directory=part.directory or before.directory,
            # What it planned when it began may differ from what it found when it ended.
            start_ns=before.start_ns if part.start_ns == part.told_ns else part.start_ns,
            first_step=before.first_step if part.first_step is None else part.first_step,
        )
    known[key] = part


def _part(event: EventRow) -> Part | None:
    told = profile_event.read(event.body)
    if told is None or not is_safe(told.session):
        return None
    state = _STATES[told.state]
    return Part(
        journal=event.journal,
        host=told.host or event.host,
        rank=event.rank if told.rank is None else told.rank,
        framework=told.framework,
        state=state,
        why=told.why[:2000],
        files=tuple(told.files),
        directory=told.directory,
        bytes=told.bytes,
        start_ns=told.start_ns or event.time_ns,
        end_ns=None if state == "running" else told.end_ns or event.time_ns,
        first_step=told.first_step,
        last_step=told.last_step,
        origin=told.origin,
        command=told.command,
        told_ns=event.time_ns,
    )
