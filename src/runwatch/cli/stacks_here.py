"""Read the stacks of a run's processes on this host when no agent runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.stacks import errand
from runwatch.clock import Clock, system_clock
from runwatch.journal.liveness import start_ticks, this_host
from runwatch.record import Command
from runwatch.record.commands import StacksWanted
from runwatch.record.stacks import Stacks


def look_here(
    root: Path,
    run: str,
    processes: Sequence[Mapping[str, Any]],
    *,
    ranks: Sequence[int] | None = None,
    native: bool = False,
    rounds: int = 2,
    clock: Clock = system_clock,
) -> list[Stacks]:
    """As an agent would record them."""
    taken: list[Stacks] = []
    targets = [_target(process, run) for process in processes]

    def event(kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        taken.append(Stacks.of(body))

    context = Context(root, this_host(), clock, lambda: targets, event)
    wanted = StacksWanted(
        run=run,
        ranks=None if ranks is None else tuple(ranks),
        rounds=rounds,
        gap_seconds=1.0,
        native=native,
    )
    errand(Command("here", wanted.KIND, wanted.body()), context)
    return taken


def _target(process: Mapping[str, Any], run: str) -> Target:
    pid = process["pid"]
    labels = {"rank": str(process["rank"]), "pid": str(pid), "journal": str(process["journal"])}
    return Target(pid, 0, labels, run, start_ticks(pid) or 0)
