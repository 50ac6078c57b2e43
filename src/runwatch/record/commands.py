"""What a head asks of an agent, and the agent's answers.

A command that is wrong is refused, not guessed at: `read_strictly` reads commands.  An answer is
read like any other message.  What an agent asks of a process is in `control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from runwatch.record.capture_limits import (
    MAX_PORT,
)
from runwatch.record.captures import DONE, Target
from runwatch.record.checks import (
    COUNT,
    MOST_RANKS,
    NAME,
    RANK,
    TEXT,
    TIME,
    either,
    fields,
    flag,
    many,
    number,
    whole,
)
from runwatch.record.control import AT_STEP, MS, STEPS
from runwatch.record.message import Message, checked, checks_of, listed, mapping, parts

_MOST_TARGETS: Final = 10_000

# ── every command's result ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TargetPreflight(Target):
    """Whether a target can be captured now."""

    why: str = checked(TEXT, "")
    """Why no way leads to it; of one that does, what to know of it."""
    frameworks: tuple[str, ...] = listed(NAME)
    address: str = checked(NAME, "")
    ready_ms: int = checked(COUNT, 0)
    """How far ahead it must be asked."""


@dataclass(frozen=True, slots=True)
class TargetProfile(Target):
    """What the recording of a target left, as its node's agent knows it."""

    state: str = checked(NAME, "")
    """done or failed."""
    why: str = checked(TEXT, "")
    framework: str = checked(NAME, "")
    files: tuple[str, ...] = listed(NAME)
    directory: str = checked(NAME, "")
    bytes: int = checked(COUNT, 0)
    start_ns: int = checked(TIME, 0)
    """By the node's clock, like `end_ns`; 0: it has not begun."""
    end_ns: int = checked(TIME, 0)


_TARGETS: Final = many(
    fields(**(checks_of(TargetPreflight) | checks_of(TargetProfile))), _MOST_TARGETS
)


@dataclass(frozen=True, slots=True)
class CommandResult(Message):
    """How a command went on one node.  Each kind of command has a result of its own below this."""

    KIND: ClassVar[str] = "command_result"

    command: str = checked(NAME, "")
    """The command's id."""
    kind: str = checked(NAME, "")
    """The command's kind."""
    host: str = checked(NAME, "")
    state: str = checked(NAME, DONE)
    """done or failed."""
    why: str = checked(TEXT, "")
    took_ms: int | None = checked(COUNT)
    looked: int | None = checked(COUNT)
    """Of a `StacksResult`."""
    processes: Any = checked(either(COUNT, _TARGETS))
    """How many there were, or each of them: the results of a kind say which."""


# ── ping ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Who is here: for trying the way down and up again."""

    KIND: ClassVar[str] = "ping"


@dataclass(frozen=True, slots=True)
class PingResult(CommandResult):
    processes: int = checked(COUNT, 0)
    """Processes of runs that live on the node."""


# ── what a node holds ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Holdings(Message):
    """What has the node recorded that the head does not have yet?

    The answer comes up behind all that the agent itself recorded before: who has the answer has
    that, too."""

    KIND: ClassVar[str] = "holdings"


@dataclass(frozen=True, slots=True)
class HoldingsResult(CommandResult):
    waiting: int = checked(COUNT, 0)
    """How many other journals the head that asks does not have to their end."""


# ── stacks ─────────────────────────────────────────────────────────────────────────────────────
#
# A process that is asked for its own stacks (`sdk/control.py`) gets no body, and answers with
# `Stacks`.  An agent that is asked records one event `Stacks` for each process and look.


@dataclass(frozen=True, slots=True)
class StacksWanted(Message):
    """Which stacks a node's agent shall take."""

    KIND: ClassVar[str] = "stacks"

    run: str = checked(NAME, "")
    """"": every run's."""
    ranks: tuple[int, ...] | None = listed(RANK, MOST_RANKS, default=None)
    """None: every rank's."""
    pids: tuple[int, ...] | None = listed(COUNT, default=None)
    """None: every process's."""
    incident: str = checked(NAME, "")
    """The id of the incident that they are taken for."""
    rounds: int = checked(COUNT, 1)
    gap_seconds: float = checked(number(), 3.0)
    """From the beginning of one round to the beginning of the next."""
    native: bool = checked(flag, True)
    first_round: int = checked(whole(0, 1_000_000), 0)
    """The number of the first round: an incident may have had others."""


@dataclass(frozen=True, slots=True)
class StacksResult(CommandResult):
    processes: int = checked(COUNT, 0)
    """How many there were."""
    looked: int = checked(COUNT, 0)
    """How many of them could be looked at."""
    problems: Mapping[str, str] = mapping(TEXT)
    """By pid: why one could not."""


# ── profiles ───────────────────────────────────────────────────────────────────────────────────

_PID: Final = whole(0, (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class ProfileCommand(Message):
    """A head's request to an agent: profiles of these targets, all from the same moment on."""

    KIND: ClassVar[str] = "profile"

    run: str = checked(NAME, "")
    """Whose processes; empty: every run's.  Of programs without a run, the name of one."""
    plain: bool = checked(flag, False)
    """Programs that are of no run."""
    ranks: tuple[int, ...] | None = listed(RANK, default=None)
    pids: tuple[int, ...] = listed(_PID)
    """Only these processes."""
    ports: tuple[int, ...] = listed(whole(1, MAX_PORT))
    """Profiler ports to try, beside the usual ones."""
    preflight: bool = checked(flag, False)
    """Record nothing: say which way leads to each target, or why none does."""
    session: str | None = checked(NAME)
    """The profile's name."""
    start_ns: int = checked(TIME, 0)
    """By the node's clock; 0: at once."""
    duration_ms: int | None = checked(MS)
    steps: int | None = checked(STEPS)
    at_step: int | None = checked(AT_STEP)
    """Begin with this step; None: with the next."""
    path: str = checked(TEXT, "")
    """Where profiles go; empty: where they go anyway."""


@dataclass(frozen=True, slots=True)
class ProfileResult(CommandResult):
    session: str = checked(NAME, "")
    """The profile's name."""
    run: str = checked(NAME, "")
    start_ns: int = checked(TIME, 0)
    preflight: bool = checked(flag, False)


@dataclass(frozen=True, slots=True)
class PreflightResult(ProfileResult):
    processes: tuple[TargetPreflight, ...] = parts(TargetPreflight)


@dataclass(frozen=True, slots=True)
class CaptureResult(ProfileResult):
    processes: tuple[TargetProfile, ...] = parts(TargetProfile)
