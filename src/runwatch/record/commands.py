"""What a head asks of an agent, and an agent of a process; and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from runwatch.record.checks import COUNT, MOST_RANKS, NAME, RANK, TEXT, flag, number, whole
from runwatch.record.message import Message, checked, listed, mapping

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
class StacksResult(Message):
    """What came of it on one node: a part of its `command_result`."""

    processes: int = checked(COUNT, 0)
    """How many there were."""
    looked: int = checked(COUNT, 0)
    """How many of them could be looked at."""
    problems: Mapping[str, str] = mapping(TEXT)
    """By pid: why one could not."""
