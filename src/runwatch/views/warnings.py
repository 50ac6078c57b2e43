"""What a person should know of a run that its state does not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from runwatch.views.divergence import Divergence

WarningCode = Literal["loss_nonfinite"]


@dataclass(frozen=True, slots=True)
class RunWarning:
    code: WarningCode
    text: str
    time_ns: int
    """Since when."""
    step: int | None = None


def of_losses(diverged: Iterable[Divergence]) -> list[RunWarning]:
    return [RunWarning("loss_nonfinite", d.text, d.since_ns, d.step) for d in diverged]
