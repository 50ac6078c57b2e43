"""The commands that an agent knows: each kind of command has its own file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runwatch.agent.errands import stacks
from runwatch.agent.errands.commands import Context, Errand
from runwatch.record import Command
from runwatch.record.commands import Ping, PingResult, StacksWanted


def ping(command: Command, context: Context) -> PingResult:
    """How many processes are here.  It tests the way of a command down and its answer up."""
    return PingResult(processes=len(context.targets()))


ERRANDS: Final[Mapping[str, Errand]] = {Ping.KIND: ping, StacksWanted.KIND: stacks.errand}
