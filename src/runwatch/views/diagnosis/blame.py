"""What a rule answers: the ranks that keep the others waiting, and why it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing

Confidence = Literal["certain", "likely", "cannot tell"]
"""`certain` is for what the end or the state of a process shows by itself; `likely` is a clear
difference between ranks."""


@dataclass(frozen=True, slots=True)
class Blame:
    rule: str
    """The name of the file in `rules/`."""
    ranks: tuple[int, ...]
    """Empty if the rule recognises the case but cannot tell who it is."""
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    """What shows it, one sentence each, for a person."""
    look_at: tuple[str, ...] = ()
    """Where a person looks next."""
    standing: Standing | None = None
    """Whether the run is stuck, if the rule knows it; None: the stacks of the blamed ranks tell."""
    in_collectives: bool = False
    """Every rank is in a collective: the run is stuck unless one of them still moves data."""


class Rule(Protocol):
    """Every file in `rules/` has this function."""

    def blame(self, scene: Scene, /) -> Blame | None:
        """None: the rule does not apply, and the next one is asked."""
        ...
