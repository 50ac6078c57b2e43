"""Who is to blame when a run stands still: the ranks' stacks, compared.

`blame.py` has the rules.  Where the evidence does not decide, the report says `cannot tell` and
shows the groups of ranks that are at the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runwatch.views.diagnosis.blame import RULES, Blame, Confidence, by_flight
from runwatch.views.diagnosis.evidence import RankEvidence, Seat
from runwatch.views.diagnosis.flight import Finding
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.saying import MOST_GROUPS, seats_in_words
from runwatch.views.diagnosis.scene import Group, Scene, grouped


@dataclass(frozen=True, slots=True)
class HangReport:
    rule: str
    ranks: tuple[int, ...]
    """Who everyone waits for; empty if that cannot be told."""
    confidence: Confidence
    text: str
    """One sentence."""
    groups: tuple[Group, ...]
    """The blamed first, then the largest."""
    evidence: tuple[str, ...]
    look_at: tuple[str, ...]
    stuck: bool
    """False if those to blame are seen at work: slow, perhaps, but not hung."""

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "ranks": list(self.ranks),
            "confidence": self.confidence,
            "text": self.text,
            "groups": [group.to_json() for group in self.groups],
            "evidence": list(self.evidence),
            "look_at": list(self.look_at),
            "stuck": self.stuck,
        }


def diagnose(
    evidence: Mapping[int, RankEvidence],
    *,
    flight: Sequence[Finding] = (),
    world_size: int = 0,
) -> HangReport:
    """Who keeps the run from getting on, as far as the evidence tells.

    Of `world_size` ranks those without evidence count as not looked at.
    """
    unknown = {
        rank: RankEvidence(rank, problems=("nothing is known of it",))
        for rank in range(world_size)
        if rank not in evidence
    }
    scene = Scene({**evidence, **unknown}, flight)
    found = next(blame for rule in RULES if (blame := rule(scene)) is not None)
    blame = _weighed(found, by_flight(scene))
    groups = _groups(scene, blame.ranks)
    return HangReport(
        rule=blame.rule,
        ranks=blame.ranks,
        confidence=blame.confidence,
        text=_sentence(scene, blame, groups),
        groups=tuple(groups),
        evidence=blame.evidence,
        look_at=blame.look_at,
        stuck=_is_stuck(scene, blame),
    )


def _weighed(stacks: Blame, flight: Blame | None) -> Blame:
    """Two witnesses: together they are sure, apart neither is believed."""
    if flight is None or stacks.confidence == "certain":
        return stacks
    told = stacks.evidence + flight.evidence
    if stacks.confidence == "cannot tell":
        return Blame("flight", flight.ranks, "likely", told, stacks.look_at)
    if stacks.ranks == flight.ranks:
        return Blame(stacks.rule, stacks.ranks, "certain", told, stacks.look_at)
    return Blame(stacks.rule, (), "cannot tell", told, ("both: stacks and flight recorder differ",))


def _is_stuck(scene: Scene, blame: Blame) -> bool:
    if blame.rule == "running":
        return False
    named = [seat for seat in scene.seen if seat.rank in blame.ranks]
    return not named or any(not _is_at_work(seat) for seat in named)


def _is_at_work(seat: Seat) -> bool:
    kind = "" if seat.wait is None else seat.wait.kind
    return seat.moves and (
        kind in ("compile", "checkpoint") or kind == "running" and not seat.loops
    )


def _groups(scene: Scene, blamed: Sequence[int]) -> list[Group]:
    """Everyone, once: the blamed, then others from the largest group on, then who was not seen."""
    named = [seat for seat in scene.seats if seat.rank in blamed]
    rest = [seat for seat in scene.seats if seat.rank not in blamed]
    seen = grouped(seat for seat in rest if seat.is_seen)
    others = grouped(seat for seat in rest if not seat.is_seen and not seat.is_gone)
    return grouped(named) + seen + others + _by_end(seat for seat in rest if seat.is_gone)


def _by_end(seats: Iterable[Seat]) -> list[Group]:
    found: dict[str, list[Seat]] = defaultdict(list)
    for each in seats:
        ended = each.evidence.ended
        found[each.state if ended is None else ended.words].append(each)
    return [Group(tuple(members)) for members in found.values()]


def _sentence(scene: Scene, blame: Blame, groups: Sequence[Group]) -> str:
    named = [group for group in groups if set(group.ranks) <= set(blame.ranks)]
    others = [group for group in groups if group not in named]
    parts = [seats_in_words(group.seats) for group in others[:MOST_GROUPS]]
    if len(others) > MOST_GROUPS:
        left = [rank for group in others[MOST_GROUPS:] for rank in group.ranks]
        parts.append(f"{ranks_in_words(left)} {'is' if len(left) == 1 else 'are'} elsewhere")
    parts += [seats_in_words(group.seats, since=True) for group in named[:MOST_GROUPS]]
    said = "; ".join(parts)
    if blame.rule == "running":
        return f"slow rather than stuck: {said}"
    return said if blame.ranks else f"cannot tell who holds the others up: {said}"
