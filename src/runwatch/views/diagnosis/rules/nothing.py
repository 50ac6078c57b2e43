"""No other rule applies: the report says what was seen and names nobody."""

from __future__ import annotations

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene


def blame(scene: Scene) -> Blame:
    evidence: tuple[str, ...] = ()
    look_at: tuple[str, ...] = ()
    if scene.unseen:
        evidence += (f"{ranks_in_words(s.rank for s in scene.unseen)} could not be looked at",)
    if scene.waiting and len(scene.groups) == 1:
        evidence += ("no rank differs from the others",)
        look_at = (
            "torch's flight recorder (TORCH_FR_BUFFER_SIZE)",
            "the network between the hosts",
        )
    return Blame("nothing", (), "cannot tell", evidence, look_at)
