"""Stacks of one process at one moment, and incidents: a run that stands still or went down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, get_args

from runwatch.record.checks import (
    COUNT,
    MOST_ITEMS,
    MOST_RANKS,
    NAME,
    RANK,
    STEP,
    TEXT,
    TIME,
    anything,
    either,
    flag,
    many,
    whole,
)
from runwatch.record.message import (
    Message,
    checked,
    listed,
    mapping,
    one_of,
    part,
    parts,
    unless_empty,
)

# ── stacks ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Frame(Message):
    function: str = checked(TEXT, "")
    file: str = checked(TEXT, "")
    line: int = checked(whole(-1, 1 << 31), 0)
    native: bool = unless_empty(checked(flag, False))


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
    tasks: tuple[AsyncTask, ...] = unless_empty(parts(AsyncTask))
    """Those of the event loop that it runs; only the process itself can tell them."""
    spins: bool = unless_empty(checked(flag, False))
    """It is in a loop that nothing in it can end; only the process itself can tell."""


@dataclass(frozen=True, slots=True)
class Beat(Message):
    """What a process has had of the cores until one moment.

    `all` and each of `threads` are numbers: how often it came onto a core, and for how many
    nanoseconds.  Of the main thread there is a third: the bytes that it has written.
    """

    ns: int = checked(COUNT, 0)
    """The moment, by the monotonic clock."""
    all: tuple[int, ...] = listed(COUNT, 2)
    threads: Mapping[str, Sequence[int]] = mapping(many(COUNT, 3))
    """By the kernel's id; only those that have a stack."""
    children: Mapping[str, Sequence[str | int]] = mapping(many(either(NAME, COUNT), 4))
    """By pid: name, state, how often, nanoseconds."""


@dataclass(frozen=True, slots=True)
class Pulse(Message):
    """A look wakes threads up: so there is a beat before it and one after it."""

    before: Beat | None = part(Beat)
    after: Beat | None = part(Beat)


@dataclass(frozen=True, slots=True)
class Stacks(Message):
    """All threads of one process.  Without threads, `problems` say why nobody could look.

    A process that is asked answers with the fields down to `threads`.  An event has the others too:
    whose process it is, and why somebody looked.
    """

    KIND: ClassVar[str] = "stacks"

    pid: int = checked(COUNT, 0)
    time_ns: int = checked(TIME, 0)
    how: str = checked(NAME, "")
    """outside, asked, signalled, watchdog (a periodic dump) or fault."""
    state: str = checked(NAME, "")
    """The letter of /proc/PID/stat."""
    problems: tuple[str, ...] = listed(TEXT)
    threads: tuple[Thread, ...] = parts(Thread)

    rank: int | None = checked(RANK)
    host: str | None = checked(NAME)
    fault: str | None = checked(NAME)
    """"Segmentation fault": what the process died of."""
    step: int | None = checked(STEP)
    """The step that a process was in when it wrote its stacks by itself."""
    journal: str | None = checked(NAME)
    incident: str | None = checked(NAME)
    """The id of the incident that they were taken for."""
    round: int | None = checked(whole(0, 1 << 31))
    """Which look of the command or incident it was, from 0 on."""
    command: str | None = checked(NAME)
    """The id of the command that asked for them."""
    child_of: int | None = checked(COUNT)
    """The pid of the rank's own process, for a process that it started."""
    pulse: Pulse | None = part(Pulse)
    answers: bool | None = checked(flag)
    """Whether it answered at its control socket; None: it was not asked."""

    @staticmethod
    def was_for(body: Mapping[str, Any], *, command: str | None, incident: str | None) -> bool:
        """Whether they were taken for that command and incident (None: for any).  This does not
        read the threads: there may be thousands of bodies, and few of them wanted."""
        return (command is None or body.get("command") == command) and (
            incident is None or body.get("incident") == incident
        )

    def with_problems(self, *problems: str) -> Stacks:
        return replace(self, problems=(*self.problems, *problems))


# ── incidents ──────────────────────────────────────────────────────────────────────────────────

IncidentKind = Literal["hang", "crash"]
IncidentState = Literal["open", "closed"]
Severity = Literal["note", "warning", "incident"]
"""`note`: shown, and no alarm.  `warning`: somebody should look.  `incident`: it stands still."""
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Incident(Message):
    """A run stood still, or went down.  Each event tells it whole: the newest of an id holds."""

    KIND: ClassVar[str] = "incident"

    id: str = checked(NAME, "")
    kind: IncidentKind = one_of(get_args(IncidentKind), "hang")
    state: IncidentState = one_of(get_args(IncidentState), "closed")
    since_ns: int = checked(TIME, 0)
    """The last progress, or the first end."""
    detected_ns: int = checked(TIME, 0)
    """When it was noticed."""
    named_ns: int = checked(TIME, 0)
    """When it was first told."""
    closed_ns: int | None = checked(TIME)
    why: str = checked(TEXT, "")
    """What closed it."""
    text: str = checked(TEXT, "")
    """One sentence: who everyone waits for, as far as that is known."""
    confidence: str = checked(NAME, "")
    """certain, likely or cannot tell."""
    severity: Severity = one_of(SEVERITIES, "incident")
    """Incidents of before there were severities were alarms."""
    ranks: tuple[int, ...] = listed(RANK, MOST_RANKS)
    """Those to blame; empty if that cannot be told."""
    rounds: int = checked(COUNT, 0)
    """How often stacks were taken for it."""
    report: Mapping[str, Any] = mapping(anything, MOST_ITEMS)
    """How the diagnosis came to it: `HangReport` in `views/diagnosis/`."""

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_alarm(self) -> bool:
        return self.severity != "note"

    def closed(self, time_ns: int, why: str) -> Incident:
        return replace(self, state="closed", closed_ns=time_ns, why=why)
