"""All ranks are in the same collective, called from the same line, but not in the same step."""

from __future__ import annotations

from collections import Counter
from typing import Final

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.comparing import is_majority, must_be_together
from runwatch.views.diagnosis.scene import Scene

MOST_NAMED: Final = 4


def blame(scene: Scene) -> Blame | None:
    if scene.elsewhere or len(scene.groups) != 1:
        return None
    group = scene.groups[0]
    steps = [seat.step for seat in group.seats]
    if None in steps or len(set(steps)) < 2:
        return None
    usual = Counter(steps).most_common(1)[0][0]
    odd = [seat for seat in group.seats if seat.step != usual]
    evidence = tuple(
        f"rank {seat.rank} is in step {seat.step}, the others in {usual}"
        for seat in odd[:MOST_NAMED]
    )
    clear = len({seat.step for seat in odd}) == 1 and is_majority(scene, len(odd))
    if clear and must_be_together(group, odd):
        ranks = tuple(seat.rank for seat in odd)
        return Blame("step", ranks, "likely", evidence, in_collectives=True)
    return Blame("step", (), "cannot tell", evidence, in_collectives=True)
