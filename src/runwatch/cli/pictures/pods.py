"""What a cluster told of a run's pods, in lines."""

from __future__ import annotations

from typing import Final

from runwatch.cli import source
from runwatch.cli.pictures import moments
from runwatch.record.pods import PodTold
from runwatch.views.pod_words import is_trouble, programs, words

MOST: Final = 6
_LOOKED_AT: Final = 1_000


def troubles(head: source.Source, run: str) -> list[str]:
    """What happened to them last, oldest first; nothing of what pods do anyway."""
    answer = head.get(
        f"/runs/{run}/events", kind=[PodTold.KIND], limit=_LOOKED_AT, newest_first="true"
    )
    told = [(event["time_ns"], PodTold.of(event["body"])) for event in answer["events"]]
    of = programs(each for _, each in told)
    lines = dict.fromkeys(  # two operators may have told the same
        f"{moments.time(time_ns)} {words(each)}" for time_ns, each in told if is_trouble(each, of)
    )
    shown = list(lines)[:MOST][::-1]
    earlier = len(lines) - len(shown)
    return [f"and {earlier} earlier words of its cluster", *shown] if earlier else shown
