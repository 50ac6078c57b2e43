"""Every shape that a journal holds and the wire carries.  `rows.py` has what a store returns.

All are frozen or column-wise, units are in the names, and nothing here does any I/O.

Times are nanoseconds since the epoch (`_ns`), taken from the producer's monotonic clock and
anchored once per process to its wall clock, so that a clock step never reorders a process's own
records.  An absent step is `NO_STEP`; a value that could not be read has no record.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NewType

NO_STEP: Final = -(2**63)

RunId = NewType("RunId", str)
JournalId = NewType("JournalId", str)

# A place in a journal: segment index in the high 32 bits, byte offset inside it in the low 32.
# Positions only grow, so "everything before position p is stored" is one integer.
Position = NewType("Position", int)

START: Final = Position(0)


def position(segment: int, offset: int) -> Position:
    return Position(segment << 32 | offset)


# A child is a forked helper of a process (a data loader's worker): it may record, but the run's
# state and attempts are its parent's.  A launcher (`runwatch exec`) started the processes of a run
# and waits for them: it takes part in the run and is no rank.
Role = Literal["process", "child", "agent", "launcher"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a journal: one process, on one boot of one host."""

    journal: JournalId
    host: str
    pid: int
    start_ns: int
    """Wall clock when the journal was opened, or when what it tells began."""
    boot: str = ""
    """The kernel's boot id; with the pid it tells whether the process can still be alive."""
    process_start_ticks: int = 0
    """/proc/<pid>/stat field 22: tells a process from a later one with the same pid."""
    role: Role = "process"
    version: str = ""
    pid_namespace: int = 0
    """The kernel's number for where `pid` counts: containers have their own.  0: not known."""


@dataclass(frozen=True, slots=True)
class RunScope:
    """A process's part in a run.  Series, spans and events name one; id 0 is 'no run'."""

    id: int
    run: RunId
    name: str
    rank: int = 0
    world_size: int = 1
    attempt_key: str = ""
    """Shared by the processes that were started together (Slurm restart, torchrun restart …)."""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one process (and device): what a point's number means."""

    id: int
    metric: str
    scope: int = 0
    unit: str = ""
    device: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanName:
    id: int
    name: str
    scope: int = 0


Definition = RunScope | Series | SpanName


class Event(NamedTuple):
    """Something that happened once: a start, an end, a config, a log line, damage."""

    time_ns: int
    kind: str
    body: Mapping[str, Any]
    step: int = NO_STEP
    scope: int = 0


class Points:
    """Columns of numbers; row i is `value[i]` of series `series[i]` at `time_ns[i]`, `step[i]`."""

    __slots__ = ("series", "time_ns", "step", "value")

    def __init__(
        self,
        series: array[int] | None = None,
        time_ns: array[int] | None = None,
        step: array[int] | None = None,
        value: array[float] | None = None,
    ) -> None:
        self.series = series if series is not None else array("I")
        self.time_ns = time_ns if time_ns is not None else array("q")
        self.step = step if step is not None else array("q")
        self.value = value if value is not None else array("d")

    def __len__(self) -> int:
        return len(self.series)

    def append(self, series: int, time_ns: int, step: int, value: float) -> None:
        self.series.append(series)
        self.time_ns.append(time_ns)
        self.step.append(step)
        self.value.append(value)


BEGIN: Final = 0
END: Final = 1


class Spans:
    """Columns of span edges.  A begin and its end share `span`; a begin alone was cut short."""

    __slots__ = ("name", "span", "edge", "time_ns", "step")

    def __init__(self) -> None:
        self.name = array("I")
        self.span = array("I")
        self.edge = array("B")
        self.time_ns = array("q")
        self.step = array("q")

    def __len__(self) -> int:
        return len(self.name)

    def append(self, name: int, span: int, edge: int, time_ns: int, step: int) -> None:
        self.name.append(name)
        self.span.append(span)
        self.edge.append(edge)
        self.time_ns.append(time_ns)
        self.step.append(step)


@dataclass(slots=True)
class Batch:
    """A stretch [start, end) of one journal, decoded.  The unit of shipping and of exactly-once.

    `skipped_records` counts the records between `start` and `end` that are lost: dropped by
    retention or damaged.  So a gap is never silent.
    """

    origin: Origin
    start: Position
    end: Position
    definitions: list[Definition] = field(default_factory=list)
    points: Points = field(default_factory=Points)
    spans: Spans = field(default_factory=Spans)
    events: list[Event] = field(default_factory=list)
    skipped_records: int = 0

    @property
    def records(self) -> int:
        return len(self.points) + len(self.spans) + len(self.events)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a store did with a batch: `position` is the journal's cursor afterwards."""

    journal: JournalId
    position: Position
    accepted: bool
    why: str = ""
    """Why the store refused the batch; sending it again at once would not help."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a head asks of one node's agent.  The answer comes back as records."""

    id: str
    kind: str
    body: Mapping[str, Any] = field(default_factory=dict)
    issued_ns: int = 0
    expires_ns: int = 0
    """By the node's clock.  The agent ignores a command that arrives later.  0: never."""
