"""No rank is in a known collective, and one rank is not where all the others are."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.comparing import is_majority
from runwatch.views.diagnosis.scene import Scene


def blame(scene: Scene) -> Blame | None:
    if scene.waiting or len(scene.groups) != 2 or len(scene.groups[1].seats) != 1:
        return None
    most, odd = scene.groups[0].first, scene.groups[1].first
    blocked = most.waits_for.kind in ("lock", "unknown", "socket", "pipe") and not most.moves
    if not blocked or not is_majority(scene, 1):
        return None
    return Blame("crowd", (odd.rank,), "likely", ("all other ranks have the same stack",))
