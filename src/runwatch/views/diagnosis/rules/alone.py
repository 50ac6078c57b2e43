"""A run of one process: no other rank can be to blame, unless the process waits for one."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.scene import Scene


def blame(scene: Scene) -> Blame | None:
    if len(scene.seats) != 1 or not scene.seen:
        return None
    if scene.seen[0].waits_for.kind in ("collective", "peer"):
        return None
    return Blame("alone", (scene.seats[0].rank,), "likely")
