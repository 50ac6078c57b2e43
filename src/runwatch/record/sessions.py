"""Measuring sessions: a named stretch of time in which devices are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runwatch.record.checks import LATEST_NS, NAME, OFFSET, TEXT, flag, whole
from runwatch.record.message import Message, checked, listed, one_of


@dataclass(frozen=True, slots=True)
class SessionStart(Message):
    KIND: ClassVar[str] = "session_start"

    id: str = checked(NAME, "")
    name: str = checked(NAME, "")
    period_ns: int | None = checked(whole(1, LATEST_NS))
    bandwidth: bool = checked(flag, True)
    nvlink: bool = checked(flag, True)
    metrics: tuple[str, ...] = listed(NAME)


@dataclass(frozen=True, slots=True)
class SessionStop(Message):
    KIND: ClassVar[str] = "session_stop"

    id: str = checked(NAME, "")
    name: str = checked(NAME, "")
    why: str | None = checked(TEXT)


@dataclass(frozen=True, slots=True)
class SessionResume(Message):
    KIND: ClassVar[str] = "session_resume"

    id: str = checked(NAME, "")
    name: str = checked(NAME, "")
    why: str | None = checked(TEXT)


@dataclass(frozen=True, slots=True)
class SessionClock(Message):
    """How far a host's clock is ahead of the head's."""

    KIND: ClassVar[str] = "session_clock"

    host: str = checked(NAME, "")
    ahead_ns: int = checked(OFFSET, 0)


@dataclass(frozen=True, slots=True)
class SessionFile(Message):
    """A session's file: where it is to be, and how much of the session is in it."""

    KIND: ClassVar[str] = "session_file"

    id: str = checked(NAME, "")
    name: str = checked(NAME, "")
    folder: str = checked(TEXT, "")
    state: str = one_of(("due", "partial", "complete"), "due")
    """due: it is not written yet.  partial: records of some clients were missing when it was
    written.  complete: nothing is known to be missing."""
    missing: tuple[str, ...] = listed(NAME)
    """Of whom: clients' ids."""
    later: bool = checked(flag, False)
    """Whether it was written again because more had come."""
