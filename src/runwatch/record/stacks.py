"""Stacks of one process at one moment, and incidents: a run that stands still or went down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runwatch.record.checks import (
    COUNT,
    MOST_ITEMS,
    MOST_RANKS,
    NAME,
    RANK,
    TEXT,
    TIME,
    anything,
    flag,
    whole,
)
from runwatch.record.message import Message, checked, listed, mapping, parts


@dataclass(frozen=True, slots=True)
class Frame(Message):
    function: str = checked(TEXT, "")
    file: str = checked(TEXT, "")
    line: int = checked(whole(-1, 1 << 31), 0)
    native: bool | None = checked(flag)


@dataclass(frozen=True, slots=True)
class AsyncTask(Message):
    """A task of an event loop: its coroutines down to the innermost that awaits."""

    name: str = checked(TEXT, "")
    awaits: tuple[str, ...] = listed(TEXT)
    """The tasks that it waits for, by name."""
    is_root: bool = checked(flag, False)
    """The loop runs until this one is done."""
    frames: tuple[Frame, ...] = parts(Frame)
    """Innermost first."""


@dataclass(frozen=True, slots=True)
class Thread(Message):
    name: str = checked(TEXT, "")
    native_id: int = checked(COUNT, 0)
    """The kernel's id; 0 where the source knows only `ident`."""
    ident: int = checked(COUNT, 0)
    """Python's id (`threading.get_ident`); 0 where unknown."""
    is_main: bool = checked(flag, False)
    holds_gil: bool = checked(flag, False)
    idle: bool = checked(flag, False)
    frames: tuple[Frame, ...] = parts(Frame)
    """Innermost first."""
    tasks: tuple[AsyncTask, ...] = parts(AsyncTask)
    """Those of the event loop that it runs; only the process itself can tell them."""
    spins: bool | None = checked(flag)
    """It is in a loop that nothing in it can end; only the process itself can tell."""


@dataclass(frozen=True, slots=True)
class StacksTaken(Message):
    KIND: ClassVar[str] = "stacks"

    pid: int = checked(COUNT, 0)
    time_ns: int = checked(TIME, 0)
    how: str = checked(NAME, "")
    state: str = checked(NAME, "")
    """The letter of /proc/PID/stat."""
    problems: tuple[str, ...] = listed(TEXT)
    threads: tuple[Thread, ...] = parts(Thread)
    rank: int | None = checked(RANK)
    host: str = checked(NAME, "")
    fault: str | None = checked(NAME)
    incident: str | None = checked(NAME)
    command: str | None = checked(NAME)
    round: int | None = checked(whole(0, 1 << 31))
    child_of: int | None = checked(COUNT)
    """The pid of the rank's own process, for a process that it started."""
    pulse: Mapping[str, Any] | None = checked(lambda value: "")
    answers: bool | None = checked(flag)


@dataclass(frozen=True, slots=True)
class IncidentTold(Message):
    """An incident, whole: the newest record of an id holds."""

    KIND: ClassVar[str] = "incident"

    id: str = checked(NAME, "")
    kind: str = checked(NAME, "")
    state: str = checked(NAME, "")
    since_ns: int | None = checked(TIME)
    detected_ns: int | None = checked(TIME)
    named_ns: int | None = checked(TIME)
    closed_ns: int | None = checked(TIME)
    why: str = checked(TEXT, "")
    text: str = checked(TEXT, "")
    confidence: str = checked(NAME, "")
    severity: str = checked(NAME, "")
    ranks: tuple[int, ...] = listed(RANK, MOST_RANKS)
    rounds: int = checked(COUNT, 0)
    report: Mapping[str, Any] = mapping(anything, MOST_ITEMS)
