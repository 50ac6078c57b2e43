"""Profiles, and captures on demand: the events that tell of them.

`profile` tells of one process's part in a profile, when its recording begins and when it ends.  A
process with the SDK writes it about itself; about any other process its agent does.  `capture` is a
head's: it has asked the nodes.  `profile_deleted` is a head's too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from runwatch.errors import UsageError
from runwatch.record.checks import (
    COUNT,
    NAME,
    OFFSET,
    RANK,
    STEP,
    TEXT,
    TIME,
    Check,
    many,
    whole,
)
from runwatch.record.message import Message, checked, formed, listed, mapping, parts

STARTED: Final = "started"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (STARTED, DONE, FAILED)
_MOST_FILES: Final = 10_000
_MOST_PROBLEMS: Final = 20
_LONGEST_NAME: Final = 200
_LONGEST_WHY: Final = 4_000
_LONGEST_PROBLEM: Final = 1_000
_PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)

# ── names ──────────────────────────────────────────────────────────────────────────────────────


def is_profile_name(name: object) -> bool:
    """Whether a folder may be called so."""
    return isinstance(name, str) and bool(_PROFILE_NAME.fullmatch(name)) and ".." not in name


def checked_name(name: object, what: str = "session") -> str:
    """A name that is safe as a part of a path.  Raises UsageError."""
    if not isinstance(name, str) or not is_profile_name(name):
        raise UsageError(
            f"{what} {str(name)[:200]!r}: a name has up to 128 letters, digits, '.', '_' and '-', "
            "begins with a letter or digit, and has no '..'"
        )
    return name


# ── profiles ───────────────────────────────────────────────────────────────────────────────────


def _cut(check: Check, longest: int, read: Callable[[str], str] = str) -> Any:
    """A text whose end is left out when it is written."""

    def readable(value: Any) -> str | None:
        return None if check(value) else read(value)

    return formed(check, "", readable, lambda value: value[:longest])


def _names(most: int) -> Any:
    """Texts; a reader drops empty ones."""

    def read(value: Any) -> tuple[str, ...] | None:
        return _texts(value, most)

    return formed(many(NAME, _MOST_FILES), (), read, list)


def _problems() -> Any:
    def read(value: Any) -> tuple[str, ...] | None:
        return _texts(value, _MOST_PROBLEMS)

    def write(value: Sequence[str]) -> list[str]:
        return [problem[:_LONGEST_PROBLEM] for problem in value[:_MOST_PROBLEMS]]

    return formed(many(TEXT, _MOST_FILES), (), read, write)


def _texts(value: Any, most: int) -> tuple[str, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(text for text in value[:most] if isinstance(text, str) and text)


@dataclass(frozen=True, slots=True)
class ProfileEvent(Message):
    """One process's part in a profile.

    A process that is asked how far it is answers with this shape too.  Its `state` then may be one
    of the SDK's own words (waiting, recording, writing, unknown).
    """

    KIND: ClassVar[str] = "profile"

    session: str = _cut(NAME, _LONGEST_NAME)
    """The profile's name."""
    state: str = checked(NAME, "")
    """One of STATES."""
    why: str = _cut(TEXT, _LONGEST_WHY, lambda why: why[:_LONGEST_WHY])
    framework: str = checked(NAME, "")
    """Several are joined with "+"."""
    frameworks: tuple[str, ...] = listed(NAME)
    """The same, one by one.  Whoever fills in one of the two has both."""
    files: tuple[str, ...] = _names(_MOST_FILES)
    directory: str = checked(TEXT, "")
    """Where the files are, as the process that wrote them names it."""
    bytes: int = checked(COUNT, 0)
    start_ns: int = checked(TIME, 0)
    end_ns: int = checked(TIME, 0)
    """0: not yet, or not known."""
    first_step: int | None = checked(STEP)
    last_step: int | None = checked(STEP)
    origin: str = checked(NAME, "")
    """program, or demand: someone asked from outside."""
    command: str = checked(NAME, "")
    problems: tuple[str, ...] = _problems()
    rank: int | None = checked(RANK)
    """None: the event's own."""
    host: str = checked(NAME, "")
    pid: int = checked(COUNT, 0)
    run: str = checked(NAME, "")
    """The folder that its profiles go to.  For a program of no run, the name of one."""
    way: str = checked(NAME, "")
    """How the trace was taken: sdk, port or kineto."""

    def __post_init__(self) -> None:
        joined = self.framework or "+".join(self.frameworks)
        object.__setattr__(self, "framework", joined)
        object.__setattr__(self, "frameworks", tuple(filter(None, joined.split("+"))))

    def body(self) -> dict[str, Any]:
        body = Message.body(self)
        if self.state == STARTED:
            body["end_ns"] = 0
        return body

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self | None:
        """None: it tells of no profile, or of no state that we know."""
        event = cls.of(body)
        has_name = isinstance(body.get("session"), str)
        return event if has_name and event.state in STATES else None


@dataclass(frozen=True, slots=True)
class ProfileDeleted(Message):
    """What processes told of this profile before is forgotten."""

    KIND: ClassVar[str] = "profile_deleted"

    run: str = checked(NAME, "")
    session: str = checked(NAME, "")
    """The profile's name."""


# ── captures ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Target(Message):
    """A process that a request is about."""

    host: str = checked(NAME, "")
    """Its own name for where it runs."""
    node: str = checked(NAME, "")
    """Whose agent was asked; empty: its host's own."""
    rank: int = checked(RANK, 0)
    pid: int = checked(COUNT, 0)
    run: str = checked(NAME, "")
    way: str = checked(NAME, "")
    """The way to it: sdk, port or kineto; empty: none is known."""


@dataclass(frozen=True, slots=True)
class CaptureRequested(Message):
    """A head has asked the nodes for a capture."""

    KIND: ClassVar[str] = "capture"

    session: str = checked(NAME, "")
    """The name of the profile that it makes."""
    command: str = checked(NAME, "")
    """The id of the command that the nodes got."""
    start_ns: int = checked(TIME, 0)
    """By the head's clock."""
    duration_ms: int | None = checked(whole(0, 10**9))
    steps: int | None = checked(whole(0, 10**9))
    at_step: int | None = checked(STEP)
    hosts: tuple[str, ...] = listed(NAME)
    """Those that were asked."""
    unreachable: Mapping[str, str] = mapping(TEXT)
    """The others, and why."""
    ahead_ns: Mapping[str, int] = mapping(OFFSET)
    """How far each host's clock is ahead of the head's."""
    processes: tuple[Target, ...] = parts(Target)
    """The targets, as the preflight named them."""
