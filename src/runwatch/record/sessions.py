"""Measuring sessions: a named stretch of time in which devices are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runwatch.record.checks import LATEST_NS, NAME, OFFSET, TEXT, flag, whole
from runwatch.record.message import Message, checked, listed


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
