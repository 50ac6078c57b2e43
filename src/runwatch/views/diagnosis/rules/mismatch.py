"""All ranks are in collectives, but not all in the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.comparing import ahead_or_behind, is_majority, must_be_together
from runwatch.views.diagnosis.evidence import Seat
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Group, Scene

MOST_NAMED: Final = 4
_LOOK_AT: Final = (
    "the order of collectives in these lines",
    "if that is right, a message was lost: torch's flight recorder (TORCH_FR_BUFFER_SIZE)",
)


def blame(scene: Scene) -> Blame | None:
    if scene.elsewhere or len(scene.groups) < 2:
        return None
    most, odd = scene.groups[0], [s for group in scene.groups[1:] for s in group.seats]
    groups = "; ".join(_in_words(group) for group in scene.groups[:MOST_NAMED])
    evidence = (
        f"ranks are in different collectives: {groups}",
        *ahead_or_behind(scene, odd),
    )
    clear = len(scene.groups) == 2 and is_majority(scene, len(odd))
    if clear and must_be_together(most, odd) and _differ(most, odd):
        ranks = tuple(seat.rank for seat in odd)
        return Blame("mismatch", ranks, "likely", evidence, _LOOK_AT, in_collectives=True)
    return Blame("mismatch", (), "cannot tell", evidence, _LOOK_AT, in_collectives=True)


def _differ(most: Group, odd: Sequence[Seat]) -> bool:
    """The same collective called from another line is no mismatch; in another step it is one."""
    if most.first.waits_for.what != odd[0].waits_for.what:
        return True
    steps = {seat.step for seat in most.seats}
    return None not in steps and len(steps) == 1 and odd[0].step not in steps | {None}


def _in_words(group: Group) -> str:
    wait = group.first.waits_for
    return f"{ranks_in_words(group.ranks)} in {wait.what}{wait.place}"
