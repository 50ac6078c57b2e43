"""The commands that an agent knows: each kind of command has its own file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runwatch.agent.errands import stacks
from runwatch.agent.errands.commands import Context, Errand
from runwatch.record import Command
from runwatch.record.commands import StacksWanted


def ping(command: Command, context: Context) -> Mapping[str, Any]:
    """How many processes are here.  It tests the way of a command down and its answer up."""
    return {"processes": len(context.targets())}


ERRANDS: Final[Mapping[str, Errand]] = {"ping": ping, StacksWanted.KIND: stacks.errand}
