"""Profiles, captures on demand, and what came of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runwatch.record.checks import (
    COUNT,
    NAME,
    OFFSET,
    RANK,
    STEP,
    TEXT,
    TIME,
    either,
    fields,
    many,
    whole,
)
from runwatch.record.message import Message, checked, checks_of, listed, mapping, parts


@dataclass(frozen=True, slots=True)
class ProfileTold(Message):
    KIND: ClassVar[str] = "profile"

    session: str = checked(NAME, "")
    state: str = checked(NAME, "")
    why: str = checked(TEXT, "")
    framework: str = checked(NAME, "")
    frameworks: tuple[str, ...] = listed(NAME)
    files: tuple[str, ...] = listed(NAME)
    directory: str = checked(TEXT, "")
    bytes: int = checked(COUNT, 0)
    start_ns: int = checked(TIME, 0)
    end_ns: int = checked(TIME, 0)
    first_step: int | None = checked(STEP)
    last_step: int | None = checked(STEP)
    origin: str = checked(NAME, "")
    command: str = checked(NAME, "")
    problems: tuple[str, ...] = listed(TEXT)
    rank: int | None = checked(RANK)
    host: str = checked(NAME, "")
    pid: int = checked(COUNT, 0)
    run: str = checked(NAME, "")
    way: str = checked(NAME, "")


@dataclass(frozen=True, slots=True)
class ProfileDeleted(Message):
    KIND: ClassVar[str] = "profile_deleted"

    run: str = checked(NAME, "")
    session: str = checked(NAME, "")


@dataclass(frozen=True, slots=True)
class ProcessCapture(Message):
    """One process of a capture: what is to be captured, what could be, or what came of it."""

    host: str = checked(NAME, "")
    node: str | None = checked(NAME)
    rank: int = checked(RANK, 0)
    pid: int = checked(COUNT, 0)
    way: str = checked(NAME, "")
    state: str | None = checked(NAME)
    why: str = checked(TEXT, "")
    framework: str | None = checked(NAME)
    files: tuple[str, ...] = listed(NAME)
    bytes: int | None = checked(COUNT)
    start_ns: int | None = checked(TIME)
    end_ns: int | None = checked(TIME)
    directory: str | None = checked(NAME)
    startup_ms: int | None = checked(COUNT)
    early_ms: int | None = checked(COUNT)


@dataclass(frozen=True, slots=True)
class CaptureAsked(Message):
    KIND: ClassVar[str] = "capture"

    session: str = checked(NAME, "")
    command: str = checked(NAME, "")
    start_ns: int = checked(TIME, 0)
    duration_ms: int | None = checked(whole(0, 10**9))
    steps: int | None = checked(whole(0, 10**9))
    hosts: tuple[str, ...] = listed(NAME)
    unreachable: Mapping[str, str] = mapping(TEXT)
    ahead_ns: Mapping[str, int] = mapping(OFFSET)
    processes: tuple[ProcessCapture, ...] = parts(ProcessCapture)


@dataclass(frozen=True, slots=True)
class CommandResult(Message):
    KIND: ClassVar[str] = "command_result"

    command: str = checked(NAME, "")
    kind: str = checked(NAME, "")
    host: str = checked(NAME, "")
    state: str = checked(NAME, "")
    why: str = checked(TEXT, "")
    took_ms: int | None = checked(COUNT)
    looked: int | None = checked(COUNT)
    processes: Any = checked(either(COUNT, many(fields(**checks_of(ProcessCapture)), 10_000)))
