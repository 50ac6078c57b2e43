"""Stacks and incidents as the HTTP API answers with them."""

from __future__ import annotations

from typing import TypedDict

import msgspec

from runwatch.head.http.types import Answer, JsonObject
from runwatch.record.stacks import IncidentKind, IncidentState, Severity
from runwatch.views.severity import Bearing


class FrameInfo(Answer):
    function: str
    file: str
    line: int
    native: bool = False


class TaskInfo(Answer):
    """A task of an event loop."""

    name: str
    awaits: list[str]
    """The tasks that it waits for."""
    is_root: bool
    """The loop runs until this one is done."""
    frames: list[FrameInfo]
    """Innermost first: the first is where it awaits."""


class ThreadInfo(Answer):
    name: str
    native_id: int
    is_main: bool
    holds_gil: bool
    idle: bool
    frames: list[FrameInfo]
    """Innermost first."""
    tasks: list[TaskInfo]
    """Of the event loop that it runs, if the process told them."""


class ProcessStacks(Answer):
    """One process at one moment.  Without threads, `problems` say why nobody could look."""

    rank: int
    host: str
    pid: int
    child_of: int
    """0: a rank's own process; else whose child it is."""
    time_ns: int
    how: str
    """outside, asked, signalled, watchdog (a periodic dump) or fault."""
    state: str
    fault: str
    problems: list[str]
    incident: str
    round: int
    command: str
    threads: list[ThreadInfo]


class StackGroup(Answer):
    """Ranks that are at the same."""

    ranks: list[int]
    text: str
    state: str
    thread: str
    frames: list[FrameInfo]
    problems: list[str]


class StackList(Answer):
    run: str
    time_ns: int | None
    """When the newest of them was taken."""
    command: str
    text: str
    """Who differs from the others; empty if that takes more than one look."""
    confidence: str
    ranks: list[int]
    unreachable: dict[str, str]
    """Hosts that could not be asked, and why."""
    waiting_for: list[str]
    """Hosts that have not answered yet."""
    groups: list[StackGroup]
    processes: list[ProcessStacks]


class IncidentInfo(Answer):
    id: str
    run: str
    kind: IncidentKind
    state: IncidentState
    since_ns: int
    detected_ns: int
    named_ns: int
    closed_ns: int | None
    why: str
    """What closed it."""
    text: str
    confidence: str
    """certain, likely or cannot tell."""
    ranks: list[int]
    rounds: int
    severity: Severity
    """note: shown, and no alarm; it rises with time."""


class IncidentList(Answer):
    run: str
    incidents: list[IncidentInfo]
    """The newest first."""


class _ReportedFrame(TypedDict):
    function: str
    file: str
    line: int


class ReportedFrame(_ReportedFrame, total=False):
    native: bool
    """Left out if it is not."""


class ReportedWait(TypedDict):
    """What a rank waits in."""

    kind: str
    what: str
    where: ReportedFrame | None
    detail: str


class ReportedGroup(TypedDict):
    """Ranks that were at the same."""

    ranks: list[int]
    text: str
    wait: ReportedWait | None
    thread: str
    frames: list[ReportedFrame]
    state: str
    ended: str
    moves: bool
    problems: list[str]


class ReportedStall(TypedDict):
    """Where the run came to a halt."""

    kind: str
    ranks: list[int]
    since_ns: int
    limit_seconds: float
    usual_seconds: float | None
    last_steps: dict[str, int]
    silent: list[int]
    text: str


class IncidentReport(TypedDict, total=False):
    """What was found out, as it was recorded: an older Runwatch recorded less."""

    rule: str
    ranks: list[int]
    confidence: str
    text: str
    groups: list[ReportedGroup]
    groups_left_out: int
    evidence: list[str]
    look_at: list[str]
    stuck: bool
    bearing: Bearing
    why: str
    unreachable: dict[str, str]
    silent_hosts: list[str]
    looked_at: int
    """How many ranks' stacks were seen."""
    stall: ReportedStall


class IncidentDetail(IncidentInfo):
    report: IncidentReport
    stacks: list[ProcessStacks]


class TakeStacks(msgspec.Struct, forbid_unknown_fields=True):
    ranks: list[int] | None = None
    native: bool = False
    """Native frames, too: they take a second or more of each process."""
    rounds: int = 2
    """With two, who moves can be told from who is stuck."""
    wait_seconds: float = 0.0
    """So long the answer may take; 0: only begin."""


class CommandInfo(Answer):
    id: str
    kind: str
    issued_ns: int
    done: bool
    hosts: list[str]
    unreachable: dict[str, str]
    results: dict[str, JsonObject]
    """By host, of those that have answered."""
