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
    """The ranks that everyone waits for; empty if that cannot be told."""
    confidence: Confidence
    text: str
    """One sentence."""
    groups: tuple[Group, ...]
    """The blamed ranks first, then the largest group."""
    evidence: tuple[str, ...]
    look_at: tuple[str, ...]
    bearing: Bearing
    """Whether the blamed ranks are stuck or at work."""
    why: str = ""
    """What shows the bearing; empty where the text says it already."""

    @property
    def stuck(self) -> bool:
        """False if the blamed ranks are at work: perhaps slow, but not hung."""
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
"""A run says itself how many ranks it has: of ranks without evidence no more are listed."""


def diagnose(
    evidence: Mapping[int, RankEvidence],
    *,
    flight: Sequence[Finding] = (),
    world_size: int = 0,
) -> HangReport:
    """Who keeps the run from getting on, as far as the evidence tells.

    Ranks below `world_size` that have no evidence count as ranks that nobody could look at.
    """
    unknown = {
        rank: RankEvidence(rank, problems=("nothing is known of it",))
        for rank in range(min(world_size, MOST_UNKNOWN))
        if rank not in evidence
    }
    scene = Scene({**evidence, **unknown}, flight)
    blame = weighed(first_blame(scene), scene)
    groups = _groups(scene, blame.ranks)
    overall = _standing(scene, blame)
    # A rank without others to compare it with is to blame only if it is stuck itself.
    unsure = len(scene.seats) == 1 and overall.bearing != "stuck"
    return HangReport(
        rule=blame.rule,
        ranks=blame.ranks,
        confidence="cannot tell" if unsure else blame.confidence,
        text=_sentence(blame, groups, overall, alone=len(scene.seats) == 1),
        groups=tuple(groups),
        evidence=blame.evidence,
        look_at=blame.look_at,
        bearing=overall.bearing,
        why=overall.why,
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
    """A collective may take long: it moves data as long as a rank's native threads are at work.

    Ranks that wait for the device do not count: NCCL's threads spin while they wait, too.
    """
    seats = [s for s in scene.waiting if s.wait is not None and s.wait.kind == "collective"]
    busy = any(seat.others_ran is not None and seat.others_ran.was_busy for seat in seats)
    return Standing("busy", "something is sent or received") if busy else otherwise


def _groups(scene: Scene, blamed: Sequence[int]) -> list[Group]:
    """Every rank once: the blamed, then other groups by size, then those unseen or gone."""
    named = [seat for seat in scene.seats if seat.rank in blamed]
    rest = [seat for seat in scene.seats if seat.rank not in blamed]
    seen = grouped(seat for seat in rest if seat.is_seen)
    unseen = grouped(seat for seat in rest if not seat.is_seen and not seat.is_gone)
    return grouped(named) + seen + unseen + _by_end(seat for seat in rest if seat.is_gone)


def _by_end(seats: Iterable[Seat]) -> list[Group]:
    """Ranks that ended in the same way are one group."""
    by_words: dict[str, list[Seat]] = defaultdict(list)
    for seat in seats:
        ended = seat.evidence.ended
        by_words[seat.state if ended is None else ended.words].append(seat)
    return [Group(tuple(members)) for members in by_words.values()]


def _sentence(blame: Blame, groups: Sequence[Group], overall: Standing, *, alone: bool) -> str:
    named = [group for group in groups if set(group.ranks) <= set(blame.ranks)]
    others = [group for group in groups if group not in named]
    parts = [seats_in_words(group.seats) for group in others[:MOST_GROUPS]]
    if len(others) > MOST_GROUPS:
        rest = [rank for group in others[MOST_GROUPS:] for rank in group.ranks]
        parts.append(f"{ranks_in_words(rest)} {'is' if len(rest) == 1 else 'are'} elsewhere")
    parts += [seats_in_words(group.seats, since=True) for group in named[:MOST_GROUPS]]
    where = "; ".join(parts)
    why = f"; {overall.why}" if overall.why else ""
    if overall.bearing == "busy":
        return f"slow rather than stuck: {where}{why}"
    if overall.bearing == "idle":
        return where + why
    if not blame.ranks:
        return f"cannot tell who holds the others up: {where}"
    if alone and overall.bearing == "unsure":
        return f"cannot tell whether it is stuck: {where}"
    return where + why
