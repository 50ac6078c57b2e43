"""What a training process tells of itself.  The SDK writes these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from runwatch.record.checks import (
    COUNT,
    MOST_ITEMS,
    MOST_RANKS,
    NAME,
    OFFSET,
    RANK,
    SECONDS,
    TEXT,
    TIME,
    anything,
    either,
    fields,
    flag,
    number,
    whole,
)
from runwatch.record.message import Message, checked, listed, mapping, unless_empty


@dataclass(frozen=True, slots=True)
class RunStart(Message):
    KIND: ClassVar[str] = "run_start"

    run: str = checked(NAME, "")
    name: str = checked(NAME, "")
    group: str = checked(NAME, "")
    rank: int | None = checked(RANK)
    local_rank: int | None = checked(RANK)
    world_size: int | None = checked(whole(0, MOST_RANKS))
    attempt_key: str = checked(NAME, "")
    orchestrator: str = checked(NAME, "")
    argv: tuple[str, ...] = listed(TEXT)
    cwd: str = checked(TEXT, "")
    python: str = checked(NAME, "")
    executable: str = checked(TEXT, "")
    user: str = checked(NAME, "")
    queued_at_ns: int | None = checked(TIME)
    imported: bool | None = checked(flag)
    """The run was not recorded by a process: it was read from a log of another tool."""
    quiet_seconds: float | None = checked(number(0, 30 * 86_400))
    """The program is heard of only now and then: so long a silence says nothing.  None: a process
    with the SDK, which is heard of all the time."""
    pod: str = unless_empty(checked(NAME, ""))
    pod_namespace: str = unless_empty(checked(NAME, ""))
    pod_uid: str = unless_empty(checked(NAME, ""))
    container: str = unless_empty(checked(NAME, ""))
    node: str = unless_empty(checked(NAME, ""))
    """The cluster's name for the node, which need not be its host name."""
    workload: str = unless_empty(checked(NAME, ""))
    """Kind and name of what the pod is a part of: JobSet/llama."""
    workload_uid: str = unless_empty(checked(NAME, ""))


@dataclass(frozen=True)
class RunEnd(Message):
    KIND: ClassVar[str] = "run_end"

    status: str = checked(NAME, "")
    explicit: bool = checked(flag, False)
    """The program called `finish`."""
    done: bool | None = checked(flag)
    """Whether the program says that all the work is done.  None: it says nothing of that."""
    reason: str | None = checked(TEXT)
    exception: str | Mapping[str, Any] | None = checked(
        either(TEXT, fields(type=TEXT, message=TEXT))
    )
    """One line, or `type` and `message`."""
    exit_code: int | None = checked(OFFSET)
    signal: str | None = checked(NAME)
    max_rss_bytes: int | None = checked(COUNT)
    """How a command ended that `runwatch exec` ran, and the most memory that one process of it
    had.  A program cannot say such things of itself."""
    by_hooks: bool | None = checked(flag)
    """Hooks began the run.  Nobody could call `finish`: that nobody did says nothing."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        end = super().of(body)
        # Older records say whether `finish` was called, and nothing else: that meant done.  A null
        # says that nobody knows.
        return end if "done" in body or end.by_hooks else replace(end, done=end.explicit)

    def body(self) -> dict[str, Any]:
        body = super().body()
        return {**body, "done": self.done} if self.explicit and self.is_completed else body

    @property
    def is_completed(self) -> bool:
        return self.status == "completed"

    @property
    def exception_text(self) -> str:
        if not isinstance(self.exception, Mapping):
            return self.exception or ""
        words = (self.exception.get("type"), self.exception.get("message"))
        return ": ".join(str(word) for word in words if word)


@dataclass(frozen=True, slots=True)
class Fork(Message):
    """The first record of a process that was forked from one that records."""

    KIND: ClassVar[str] = "fork"

    parent_journal: str = checked(NAME, "")
    parent_pid: int | None = checked(COUNT)
    detached: bool = checked(flag, False)
    """It has a session of its own: it goes on when its parent has ended."""


@dataclass(frozen=True, slots=True)
class Joined(Message):
    """The process turned out to belong to another run: its records go on there, and those so far
    are told there again.  `runwatch exec` learns the name from the command that it runs."""

    KIND: ClassVar[str] = "joined"

    run: str = checked(NAME, "")


@dataclass(frozen=True, slots=True)
class Config(Message):
    KIND: ClassVar[str] = "config"

    part: str = checked(NAME, "")
    """user, system or software."""
    values: Mapping[str, Any] = mapping(anything, MOST_ITEMS)


@dataclass(frozen=True, slots=True)
class LogText(Message):
    """A text, or another value that is no number, which the program logged."""

    KIND: ClassVar[str] = "log"

    name: str = checked(TEXT, "")
    value: Any = checked(anything)


@dataclass(frozen=True, slots=True)
class Elapsed(Message):
    """A stretch of time that is known only at its end."""

    KIND: ClassVar[str] = "elapsed"

    name: str = checked(NAME, "")
    seconds: float | None = checked(SECONDS)
    ago_seconds: float | None = checked(SECONDS)
    """How long before the record the stretch ended; None: just then."""
    source: str | None = checked(NAME)

    @staticmethod
    def stretch(body: Mapping[str, Any]) -> tuple[str, float, float] | None:
        """Name, seconds and seconds ago, without a message: goodput reads these by the million."""
        name, seconds, ago = body.get("name"), body.get("seconds"), body.get("ago_seconds") or 0.0
        if not isinstance(name, str) or not isinstance(seconds, int | float) or seconds < 0:
            return None
        return (name, seconds, ago) if isinstance(ago, int | float) else None


@dataclass(frozen=True, slots=True)
class GoodputEntry(Message):
    """An entry of a goodput log, as the program wrote it (`entries.py` says what it means)."""

    KIND: ClassVar[str] = "goodput_entry"

    logger: str = checked(NAME, "")
    entry: Mapping[str, Any] | None = checked(fields())
    """None: it was too long to be kept."""


@dataclass(frozen=True, slots=True)
class SdkWarning(Message):
    """Something of ours did not work in the training process."""

    KIND: ClassVar[str] = "warning"

    what: str = checked(TEXT, "")
    count: int = checked(COUNT, 1)


@dataclass(frozen=True, slots=True)
class JournalLoss(Message):
    """How many records a journal has dropped since it was opened."""

    KIND: ClassVar[str] = "journal_loss"

    dropped_records: int = checked(COUNT, 0)
    """They were in the journal; its budget was used up."""
    lost_records: int | None = checked(COUNT)
    """They never reached the journal: there was no room."""


@dataclass(frozen=True, slots=True)
class ClockJump(Message):
    """Somebody set the wall clock.  A process's own records stay in order."""

    KIND: ClassVar[str] = "clock_jump"

    seconds: float = checked(number(), 0.0)
