"""What a person should know of a run that its state does not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from runwatch.views.divergence import Divergence
from runwatch.views.runs import AT_ONCE, RunSummary

WarningCode = Literal["loss_nonfinite", "no_steps", "jobs_at_once"]
Weight = Literal["warning", "note"]
"""A note explains what is shown, and is no alarm."""
PATIENCE_NS: Final = 60_000_000_000
"""A run that goes on may take this long until its first step."""
NO_LOOP: Final = "no steps seen: no known framework loop"
NOT_MARKED: Final = (
    "no steps seen: the program marks none (`run.steps`), and was not started by `runwatch exec`"
)

FROM_A_LOG: Final = "imported: its log does not say where the time of the steps went"


@dataclass(frozen=True, slots=True)
class RunWarning:
    code: WarningCode
    text: str
    time_ns: int
    """Since when."""
    step: int | None = None
    weight: Weight = "warning"


def of_losses(diverged: Iterable[Divergence]) -> list[RunWarning]:
    return [RunWarning("loss_nonfinite", d.text, d.since_ns, d.step) for d in diverged]


def of_jobs(run: RunSummary) -> list[RunWarning]:
    if run.jobs < 2:
        return []
    text = f"{run.jobs} jobs of this name run at once: {AT_ONCE}"
    return [RunWarning("jobs_at_once", text, run.jobs_since_ns)]


def of_steps(run: RunSummary) -> list[RunWarning]:
    """Without steps much cannot be told: what is productive, whether it hangs, how far it is."""
    if run.last_step is not None or (
        run.state == "running" and run.last_ns - run.started_ns < PATIENCE_NS
    ):
        return []
    text = FROM_A_LOG if run.imported else NO_LOOP if run.by_exec else NOT_MARKED
    return [RunWarning("no_steps", text, run.started_ns, weight="note")]
