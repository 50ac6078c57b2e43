"""The stacks of all ranks change, or those of some ranks in a collective: the run is slow, not
stuck."""

from __future__ import annotations

from typing import Final

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing

_WORDS: Final = "stacks change from one look to the next"


def blame(scene: Scene) -> Blame | None:
    if len(scene.seen) < 2:
        return None
    if any(s.moves for s in scene.waiting) or all(s.moves for s in scene.seen):
        return Blame("running", (), "cannot tell", (_WORDS,), standing=Standing("busy", _WORDS))
    return None
