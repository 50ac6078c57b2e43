"""What an agent can do when a head asks: one kind of command, one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runwatch.agent.errands import stacks
from runwatch.agent.errands.commands import Context, Errand
from runwatch.record import Command
from runwatch.record.commands import Ping, PingResult, StacksWanted


def ping(command: Command, context: Context) -> PingResult:
    """Who is here: for trying the way down and up again."""
    return PingResult(processes=len(context.targets()))


ERRANDS: Final[Mapping[str, Errand]] = {Ping.KIND: ping, StacksWanted.KIND: stacks.errand}
