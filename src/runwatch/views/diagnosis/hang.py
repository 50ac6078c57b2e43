"""Who is to blame when a run stands still: the stacks of its ranks, compared.

The rules are in `rules/`.  Where the evidence does not decide, the report says `cannot tell` and
shows the ranks in groups, by what they are at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runwatch.views.diagnosis.blame import Blame, Confidence
from runwatch.views.diagnosis.evidence import RankEvidence, Seat
from runwatch.views.diagnosis.flight import Finding
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.rules import first_blame
from runwatch.views.diagnosis.saying import MOST_GROUPS, seats_in_words
from runwatch.views.diagnosis.scene import Group, Scene, grouped
from runwatch.views.diagnosis.standing import Standing, most_lenient, standing
from runwatch.views.diagnosis.weighing import weighed
from runwatch.views.severity import Bearing


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
    bearing: Bearing
    """Whether those to blame are stuck, or at work, or cannot be told."""
    why: str = ""
    """Why it is taken for that, if it is not stuck."""

    @property
    def stuck(self) -> bool:
        """False if those to blame are seen at work: slow, perhaps, but not hung."""
        return self.bearing in ("stuck", "unsure")

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
            "bearing": self.bearing,
            "why": self.why,
        }


MOST_UNKNOWN: Final = 1 << 16


def diagnose(
    evidence: Mapping[int, RankEvidence],
    *,
    flight: Sequence[Finding] = (),
    world_size: int = 0,
) -> HangReport:
    """Who keeps the run from getting on, as far as the evidence tells.

    Of `world_size` ranks those without evidence count as not looked at; a process says itself how
    many there are.
    """
    unknown = {
        rank: RankEvidence(rank, problems=("nothing is known of it",))
        for rank in range(min(world_size, MOST_UNKNOWN))
        if rank not in evidence
    }
    scene = Scene({**evidence, **unknown}, flight)
    blame = weighed(first_blame(scene), scene)
    groups = _groups(scene, blame.ranks)
    how = _standing(scene, blame)
    # A rank without others to compare it with is to blame only if it is stuck itself.
    unsure = len(scene.seats) == 1 and how.bearing != "stuck"
    return HangReport(
        rule=blame.rule,
        ranks=blame.ranks,
        confidence="cannot tell" if unsure else blame.confidence,
        text=_sentence(blame, groups, how, alone=len(scene.seats) == 1),
        groups=tuple(groups),
        evidence=blame.evidence,
        look_at=blame.look_at,
        bearing=how.bearing,
        why=how.why,
    )


def _standing(scene: Scene, blame: Blame) -> Standing:
    """Of the ranks that everyone waits for; the ranks that wait have no say."""
    if blame.standing is not None:
        return blame.standing
    if blame.in_collectives:
        return _in_collectives(scene, Standing("stuck" if blame.ranks else "unsure"))
    named = [seat for seat in scene.seen if seat.rank in blame.ranks] or scene.elsewhere
    return most_lenient(map(standing, named)) or _in_collectives(scene, Standing("unsure"))


def _in_collectives(scene: Scene, otherwise: Standing) -> Standing:
    """Where all are in collectives, native threads may be at work on a long one.

    Who waits for the device says nothing by that: NCCL's threads spin while they wait, too.
    """
    seats = [s for s in scene.waiting if s.wait is not None and s.wait.kind == "collective"]
    busy = any(seat.others_ran is not None and seat.others_ran.was_busy for seat in seats)
    return Standing("busy", "something is sent or received") if busy else otherwise


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


def _sentence(blame: Blame, groups: Sequence[Group], how: Standing, *, alone: bool) -> str:
    named = [group for group in groups if set(group.ranks) <= set(blame.ranks)]
    others = [group for group in groups if group not in named]
    parts = [seats_in_words(group.seats) for group in others[:MOST_GROUPS]]
    if len(others) > MOST_GROUPS:
        left = [rank for group in others[MOST_GROUPS:] for rank in group.ranks]
        parts.append(f"{ranks_in_words(left)} {'is' if len(left) == 1 else 'are'} elsewhere")
    parts += [seats_in_words(group.seats, since=True) for group in named[:MOST_GROUPS]]
    said = "; ".join(parts)
    if how.bearing in ("busy", "idle"):
        why = f"; {how.why}" if how.why else ""
        return f"slow rather than stuck: {said}{why}" if how.bearing == "busy" else said + why
    if not blame.ranks:
        return f"cannot tell who holds the others up: {said}"
    if alone and how.bearing == "unsure":
        return f"cannot tell whether it is stuck: {said}"
    return f"{said}; {how.why}" if how.why else said
