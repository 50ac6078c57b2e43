"""Two witnesses: what the stacks say, weighed against what torch's flight recorder says."""

from __future__ import annotations

from dataclasses import replace

from runwatch.views.diagnosis.blame import Blame
from runwatch.views.diagnosis.flight import Finding
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing


def weighed(stacks: Blame, scene: Scene) -> Blame:
    """Where both name the same ranks it is certain; where they differ neither is believed."""
    flight = _blame_of_flight(scene)
    if flight is None or stacks.confidence == "certain":
        return stacks
    evidence = stacks.evidence + flight.evidence
    if stacks.confidence == "cannot tell":
        return replace(flight, evidence=evidence, look_at=stacks.look_at)
    if stacks.ranks == flight.ranks:
        return replace(stacks, confidence="certain", evidence=evidence)
    return replace(
        stacks,
        ranks=(),
        confidence="cannot tell",
        evidence=evidence,
        look_at=("both: stacks and flight recorder differ",),
    )


def _blame_of_flight(scene: Scene) -> Blame | None:
    """What the flight recorders of the ranks show, whatever their stacks say."""
    decided = [finding for finding in scene.flight if finding.decided and finding.ranks]
    if not decided:
        return None
    ranks = decided[0].ranks
    if any(finding.ranks != ranks for finding in decided) or len(ranks) * 2 > len(scene.seats):
        return None
    evidence = tuple(map(_in_words, decided))
    return Blame("flight", ranks, "likely", evidence, standing=Standing("stuck"))


def _in_words(finding: Finding) -> str:
    who = ranks_in_words(finding.ranks)
    what = f"collective {finding.sequence} of group {finding.group} ({finding.operation})"
    if finding.missing:
        return f"flight recorder: {who} never called {what}"
    calls = finding.calls or {}
    instead = sorted({calls[rank].operation for rank in finding.different if rank in calls})
    return f"flight recorder: {who} called {'; '.join(instead)} as {what}"
