"""A rank is stopped: somebody sent SIGSTOP, or a debugger holds it."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing


def blame(scene: Scene) -> Blame | None:
    stopped = [seat for seat in scene.seats if seat.is_stopped]
    if not stopped:
        return None
    ranks = tuple(seat.rank for seat in stopped)
    words = f"{ranks_in_words(ranks)}: the kernel says state {stopped[0].state}"
    return Blame("stopped", ranks, "certain", (words,), standing=Standing("stuck"))
