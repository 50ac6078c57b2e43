"""Some ranks wait in a collective, and others are not in it."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.comparing import ahead_or_behind
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene, grouped


def blame(scene: Scene) -> Blame | None:
    if not scene.waiting or not scene.elsewhere:
        return None
    ranks = tuple(seat.rank for seat in scene.elsewhere)
    words = (
        f"of the ranks that were looked at, only {ranks_in_words(ranks)} did not wait for others"
    )
    evidence = (words, *ahead_or_behind(scene, scene.elsewhere))
    if _is_clear(scene):
        return Blame("elsewhere", ranks, "likely", evidence)
    return Blame("elsewhere", (), "cannot tell", evidence)


def _is_clear(scene: Scene) -> bool:
    together = len(grouped(scene.elsewhere)) == 1
    surely = any(s.waits_for.kind in ("collective", "peer") for s in scene.waiting)
    outnumbered = len(scene.elsewhere) < len(scene.waiting)
    # Where the ranks that were seen are at work, a rank that was not seen may be the culprit.
    at_work = bool(scene.unseen) and all(s.moves for s in scene.elsewhere)
    return together and (outnumbered or surely) and not at_work
