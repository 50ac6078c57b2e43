"""The ranks of an attempt, brought together step by step.

A step of the run is a *meeting*: it lasts from when the last rank began it until the last rank
ended it, and the time before it is told by the rank that began it last.  What is taken is a maximum
over ranks, so the order in which ranks are heard does not matter.

Ranks come and go.  The run goes back to an earlier step when all ranks that are there do: then a
new *generation* of steps begins.  A rank that goes back alone (it was replaced, or lost its state)
catches up with the others; the steps that it does again meanwhile are nobody's but its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runwatch.views.goodput.books import Cell
from runwatch.views.goodput.track import Piece, Stride, Track

At = tuple[int, int]
"""Generation and step."""
BEYOND: Final = 1 << 62


@dataclass(slots=True)
class Meeting:
    """One step, as far as ranks were heard."""

    begin_ns: int
    begun_last: int
    gap: list[Piece]
    end_ns: int
    ended_last: int
    inside: list[Piece]
    begun_first_ns: int
    ended_first_ns: int
    ranks: int = 1

    @classmethod
    def of(cls, stride: Stride, rank: int) -> Meeting:
        begin, end = stride.begin_ns, stride.end_ns
        return cls(begin, rank, stride.gap, end, rank, stride.inside, begin, end)

    def join(self, stride: Stride, rank: int) -> None:
        # Ties go to the lower rank, so that the order of arrival never shows.
        if (stride.begin_ns, -rank) > (self.begin_ns, -self.begun_last):
            self.begin_ns, self.gap, self.begun_last = stride.begin_ns, stride.gap, rank
        if (stride.end_ns, -rank) > (self.end_ns, -self.ended_last):
            self.end_ns, self.inside, self.ended_last = stride.end_ns, stride.inside, rank
        self.begun_first_ns = min(self.begun_first_ns, stride.begin_ns)
        self.ended_first_ns = min(self.ended_first_ns, stride.end_ns)
        self.ranks += 1

    def cell(self, at: At) -> Cell:
        return Cell(*at, self.begin_ns, self.gap, self.end_ns, self.inside, self.ranks)

    @property
    def awaited(self) -> tuple[int, int]:
        """The rank that the others waited for, and how long the first of them did."""
        began, ended = self.begin_ns - self.begun_first_ns, self.end_ns - self.ended_first_ns
        return (self.begun_last, began) if began >= ended else (self.ended_last, ended)


@dataclass(slots=True)
class Place:
    """Where a rank is."""

    lap: int
    peak: int | None = None
    """The last step that it did in this generation; None: it has done none."""
    apart: bool = False
    """It has gone back, or come in behind the others, who have not gone back with it yet."""
    strides: list[tuple[Stride, int]] = field(default_factory=list)
    """What it did since, and as which rank."""

    def copy(self) -> Place:
        return replace(self, strides=list(self.strides))


@dataclass(slots=True)
class Muster:
    generation: int = 0
    meetings: dict[At, Meeting] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    begun_ns: int | None = None
    """When the first step began."""

    def take(self, track: Track, stride: Stride, reached: At | None) -> At | None:
        """A rank completed a step; `reached` is the last one that is booked.

        Where it was put; None while that is not known.
        """
        key, rank = track.key, track.rank
        place = self.places.get(key)
        if place is None:
            behind = self._is_behind(track, stride, reached)
            place = self.places[key] = Place(stride.lap, apart=behind)
            if self.begun_ns is None:
                self.begun_ns = stride.begin_ns
        elif stride.lap != place.lap:
            place.lap, place.apart = stride.lap, True
            place.strides = []
        if not place.apart:
            place.peak = stride.step
            return self._meet(stride, rank)
        place.strides.append((stride, rank))
        return None

    def _is_behind(self, track: Track, stride: Stride, reached: At | None) -> bool:
        """Whether it came when the others had done this step already."""
        if self.begun_ns is None or track.start_ns <= self.begun_ns:
            return False
        if reached is not None and stride.step <= reached[1]:
            return True
        met = self.meetings.get((self.generation, stride.step))
        return met is not None and met.ended_first_ns <= track.start_ns

    def settle(self, present: Iterable[str]) -> None:
        """If all who are there have gone back, a new generation begins; who went back alone, and
        does a step again while the others do it, goes on with them."""
        places = [self.places[key] for key in present if key in self.places]
        apart = [place for place in places if place.apart]
        if places and len(apart) == len(places):
            self.generation += 1
            for place in self.places.values():
                place.peak = None
                self._join(place, 0)
            return
        for place in apart:
            for at, (stride, _) in enumerate(place.strides):
                met = self.meetings.get((self.generation, stride.step))
                if met is not None and met.end_ns > stride.begin_ns:
                    self._join(place, at)
                    break

    def is_apart(self, present: Iterable[str]) -> bool:
        """Whether somebody is."""
        return any(key in self.places and self.places[key].apart for key in present)

    def _join(self, place: Place, first: int) -> None:
        strides, place.strides, place.apart = place.strides[first:], [], False
        for stride, rank in strides:
            place.peak = stride.step
            self._meet(stride, rank)

    def passed(self, present: Iterable[str]) -> At | None:
        """Up to where every rank that is there has come; None if one has not begun."""
        found: At = (self.generation, BEYOND)
        for key in present:
            place = self.places.get(key)
            if place is None:
                return None
            if not place.apart and place.peak is not None:
                found = min(found, (self.generation, place.peak))
        return found

    def ready(self, until: At) -> list[At]:
        return sorted(at for at in self.meetings if at <= until)

    def copy(self) -> Muster:
        meetings = {at: replace(meeting) for at, meeting in self.meetings.items()}
        places = {key: place.copy() for key, place in self.places.items()}
        return Muster(self.generation, meetings, places, self.begun_ns)

    def _meet(self, stride: Stride, rank: int) -> At:
        at = self.generation, stride.step
        found = self.meetings.get(at)
        if found is None:
            self.meetings[at] = Meeting.of(stride, rank)
        else:
            found.join(stride, rank)
        return at

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "begun": self.begun_ns,
            "meetings": [
                [*at, *(getattr(meeting, name) for name in Meeting.__slots__)]
                for at, meeting in self.meetings.items()
            ],
            "places": [[key, p.lap, p.peak, p.apart, p.strides] for key, p in self.places.items()],
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Muster:
        muster = cls(state["generation"], begun_ns=state["begun"])
        for generation, step, begin, last, gap, end, ended, inside, *rest in state["meetings"]:
            muster.meetings[generation, step] = Meeting(
                begin, last, list(_pieces(gap)), end, ended, list(_pieces(inside)), *rest
            )
        for key, lap, peak, apart, strides in state["places"]:
            held = [(_stride(stride), rank) for stride, rank in strides]
            muster.places[key] = Place(lap, peak, apart, held)
        return muster


def _stride(saved: Any) -> Stride:
    lap, step, since, begin, end, gap, inside = saved
    return Stride(lap, step, since, begin, end, list(_pieces(gap)), list(_pieces(inside)))


def _pieces(saved: Any) -> Iterator[Piece]:
    return ((start, end, spent) for start, end, spent in saved)
