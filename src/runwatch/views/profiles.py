"""Profiles: what the recordings of one name left, on however many processes, as one thing.

Each process tells of its own part in two events `profile`, one when its recording begins and one
when it ends; profiles are folded from those.  `profile_deleted`, which a head writes, forgets what
was told before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from runwatch.record import JournalId, RunId
from runwatch.record.captures import (
    DONE,
    FAILED,
    STARTED,
    ProfileDeleted,
    ProfileEvent,
    is_profile_name,
)
from runwatch.rows import EventRow
from runwatch.views.runs import ProcessState

_ENDED: Final = "the process ended meanwhile"
_SILENT: Final = "the process was not heard of again"
_LONGEST_WHY: Final = 2_000

State = Literal["running", "done", "failed", "partial"]
_STATES: Final[Mapping[str, State]] = {STARTED: "running", DONE: "done", FAILED: "failed"}
Key = tuple[RunId, str]
"""A run, and the name of a profile of it."""
_PartKey = tuple[JournalId, int, str]
"""A journal, a rank and a framework."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one process's recording left."""

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
    """When the process told of it last."""


@dataclass(frozen=True, slots=True)
class Profile:
    run: RunId
    name: str
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
        return "; ".join(f"{rank_words(hit)}: {why}" for why, hit in ranks.items())

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


def rank_words(ranks: Iterable[int]) -> str:
    """`ranks 0, 3, 8`, the first eight of them."""
    known = sorted(set(ranks))
    shown = ", ".join(map(str, known[:8])) + (" …" if len(known) > 8 else "")
    return f"rank{'s' if len(known) > 1 else ''} {shown}"


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
) -> dict[Key, Profile]:
    """Profiles in the order in which they began.

    What processes that are `gone` began and did not end, failed.  What makes no sense is left out.
    """
    parts: dict[Key, dict[_PartKey, Part]] = {}
    for row in sorted(events, key=lambda row: row.time_ns):
        if row.kind == ProfileDeleted.KIND:
            deleted = ProfileDeleted.of(row.body)
            parts.pop((RunId(deleted.run), deleted.session), None)
        elif row.kind == ProfileEvent.KIND:
            event = ProfileEvent.read(row.body)
            if event is not None and is_profile_name(event.session):
                key = _run(row, event), event.session
                _add(parts.setdefault(key, {}), _part(row, event))
    profiles = (_profile(key, of_key.values(), gone or {}) for key, of_key in parts.items())
    ordered = sorted(profiles, key=lambda profile: (profile.start_ns, profile.run, profile.name))
    return {(profile.run, profile.name): profile for profile in ordered}


def _run(row: EventRow, event: ProfileEvent) -> RunId:
    """Programs that are of no run are told of under a name of their own."""
    return RunId(event.run) if not row.run and is_profile_name(event.run) else row.run


def _profile(key: Key, parts: Iterable[Part], gone: Mapping[JournalId, str]) -> Profile:
    ended = [_broken_off(part, gone.get(part.journal, "")) for part in parts]
    return Profile(*key, tuple(sorted(ended, key=lambda part: (part.rank, part.host))))


def _broken_off(part: Part, why: str) -> Part:
    if part.state != "running" or not why:
        return part
    return replace(part, state="failed", why=why, end_ns=part.told_ns)


def _add(known: dict[_PartKey, Part], part: Part) -> None:
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


def _part(row: EventRow, event: ProfileEvent) -> Part:
    state = _STATES[event.state]
    return Part(
        journal=row.journal,
        host=event.host or row.host,
        rank=row.rank if event.rank is None else event.rank,
        framework=event.framework,
        state=state,
        why=event.why[:_LONGEST_WHY],
        files=event.files,
        directory=event.directory,
        bytes=event.bytes,
        start_ns=event.start_ns or row.time_ns,
        end_ns=None if state == "running" else event.end_ns or row.time_ns,
        first_step=event.first_step,
        last_step=event.last_step,
        origin=event.origin,
        command=event.command,
        told_ns=row.time_ns,
    )
