"""What an agent can do when a head asks: one kind of command, one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runwatch.agent.errands import stacks
from runwatch.agent.errands.commands import Context, Errand
from runwatch.record import Command
from runwatch.record.commands import StacksWanted


def ping(command: Command, context: Context) -> Mapping[str, Any]:
    """Who is here: for trying the way down and up again."""
    return {"processes": len(context.targets())}


ERRANDS: Final[Mapping[str, Errand]] = {"ping": ping, StacksWanted.KIND: stacks.errand}
