"""All ranks of a run at one moment: who waits, who is elsewhere, who has gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runwatch.views.diagnosis.evidence import RankEvidence, Seat, seat, why_unseen
from runwatch.views.diagnosis.flight import Finding
from runwatch.views.diagnosis.saying import seats_in_words


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that are at the same place, or ended in the same way."""

    seats: tuple[Seat, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(seat.rank for seat in self.seats)

    @property
    def first(self) -> Seat:
        return self.seats[0]

    def to_json(self) -> dict[str, Any]:
        first = self.first
        frames = () if first.thread is None else first.thread.frames
        ended = first.evidence.ended
        return {
            "ranks": list(self.ranks),
            "text": seats_in_words(self.seats),
            "wait": None if first.wait is None else first.wait.to_json(),
            "thread": "" if first.thread is None else first.thread.name,
            "frames": [frame.body() for frame in frames],
            "state": first.state,
            "ended": "" if ended is None else ended.words,
            "moves": first.moves,
            "problems": [] if first.is_seen or first.is_gone else [why_unseen(first.evidence)],
        }


class Scene:
    """All ranks of a run, and what their flight recorders show: what a rule is given."""

    def __init__(
        self, evidence: Mapping[int, RankEvidence], flight: Sequence[Finding] = ()
    ) -> None:
        self.seats = [seat(evidence[rank]) for rank in sorted(evidence)]
        self.flight = tuple(flight)

    @cached_property
    def seen(self) -> list[Seat]:
        """Alive, not stopped, and with stacks."""
        return [seat for seat in self.seats if seat.is_seen]

    @cached_property
    def unseen(self) -> list[Seat]:
        """Alive as far as is known, but without stacks."""
        return [s for s in self.seats if s.thread is None and not s.is_gone and not s.is_stopped]

    @cached_property
    def gone(self) -> list[Seat]:
        """Ended, or dead and not yet collected."""
        return [seat for seat in self.seats if seat.is_gone]

    @cached_property
    def waiting(self) -> list[Seat]:
        """Those that wait for other ranks.

        A stack may not show what it waits for.  Then it counts as waiting if a rank in the same
        line is known to wait.
        """
        keys = {seat.key for seat in self.seen if seat.waits_for_others}
        return [s for s in self.seen if s.waits_for_others or (_is_blank(s) and s.key in keys)]

    @cached_property
    def elsewhere(self) -> list[Seat]:
        """Seen, and not waiting for other ranks."""
        waiting = {seat.rank for seat in self.waiting}
        return [seat for seat in self.seen if seat.rank not in waiting]

    @cached_property
    def groups(self) -> list[Group]:
        """The ranks seen, by where they are, the largest group first."""
        return grouped(self.seen)


def _is_blank(seat: Seat) -> bool:
    return seat.wait is not None and seat.wait.kind == "unknown" and not seat.moves


def grouped(seats: Iterable[Seat]) -> list[Group]:
    """Ranks with the same key are one group; the largest group comes first."""
    by_key: dict[Any, list[Seat]] = defaultdict(list)
    for member in seats:
        by_key[member.key].append(member)
    groups = [Group(tuple(members)) for members in by_key.values()]
    return sorted(groups, key=lambda group: (-len(group.seats), group.ranks))
