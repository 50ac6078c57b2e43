"""The ranks of an attempt, brought together step by step.

A step of the run is a *meeting*: it lasts from when the last rank began it until the last rank
ended it, and the time before it is told by the rank that began it last.  What is taken is a maximum
over ranks, so the order in which ranks are heard does not matter.

Ranks come and go.  The run goes back to an earlier step when all ranks that are there do: then a
new *generation* of steps begins.  A rank that goes back alone (it was replaced, or lost its state)
catches up with the others; the steps that it does again meanwhile are nobody's but its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
        begin, end = stride.begin_ns, stride.end_ns
        if begin > self.begin_ns or (begin == self.begin_ns and rank < self.begun_last):
            self.begin_ns, self.gap, self.begun_last = begin, stride.gap, rank
        if end > self.end_ns or (end == self.end_ns and rank < self.ended_last):
            self.end_ns, self.inside, self.ended_last = end, stride.inside, rank
        if begin < self.begun_first_ns:
            self.begun_first_ns = begin
        if end < self.ended_first_ns:
            self.ended_first_ns = end
        self.ranks += 1

    def merge(self, other: Meeting) -> None:
        """Both are of the same step."""
        if (other.begin_ns, -other.begun_last) > (self.begin_ns, -self.begun_last):
            self.begin_ns, self.gap = other.begin_ns, other.gap
            self.begun_last = other.begun_last
        if (other.end_ns, -other.ended_last) > (self.end_ns, -self.ended_last):
            self.end_ns, self.inside = other.end_ns, other.inside
            self.ended_last = other.ended_last
        self.begun_first_ns = min(self.begun_first_ns, other.begun_first_ns)
        self.ended_first_ns = min(self.ended_first_ns, other.ended_first_ns)
        self.ranks += other.ranks

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
    since_ns: int
    """When it began its first step."""
    peak: int | None = None
    """The last step that it did in this generation; None: it has done none."""
    apart: list[list[tuple[Stride, int]]] = field(default_factory=list)
    """It has gone back, or come in behind the others, who have not gone back with it yet: what it
    did since, and as which rank; one list for each time."""

    def copy(self) -> Place:
        return replace(self, apart=[list(strides) for strides in self.apart])


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
            place = self.places[key] = Place(stride.lap, stride.begin_ns)
            if self._is_behind(track, stride, reached):
                place.apart.append([])
            if self.begun_ns is None:
                self.begun_ns = stride.begin_ns
        elif stride.lap != place.lap:
            place.lap = stride.lap
            place.apart.append([])
        if not place.apart:
            place.peak = stride.step
            return self._meet(stride, rank)
        place.apart[-1].append((stride, rank))
        return None

    def _is_behind(self, track: Track, stride: Stride, reached: At | None) -> bool:
        """Whether it came when the others had done this step already."""
        if self.begun_ns is None or track.start_ns <= self.begun_ns:
            return False
        if reached is not None and stride.step <= reached[1]:
            return True
        met = self.meetings.get((self.generation, stride.step))
        return met is not None and met.ended_first_ns <= track.start_ns

    def settle(self, tracks: Mapping[str, Track]) -> None:
        """If all who were there have gone back, a new generation begins; who went back alone, and
        does a step again while the others do it, goes on with them."""
        while self._settle(tracks):
            pass

    def _settle(self, tracks: Mapping[str, Track]) -> bool:
        """Whether anything changed."""
        apart = [place for place in self.places.values() if place.apart]
        if not apart:
            return False
        turned_ns = min(place.apart[0][0][0].begin_ns for place in apart)
        stayed = [
            place.peak or 0
            for key, place in self.places.items()
            if not place.apart
            and place.since_ns < turned_ns
            and _is_there(tracks[key], turned_ns)
            and place.since_ns < turned_ns
            and _is_there(tracks[key], turned_ns)
        ]
        if not stayed:
            self._begin_again(turned_ns)
            return True
        for place in apart:
            for at, (stride, _) in enumerate(place.apart[0]):
                met = self.meetings.get((self.generation, stride.step))
                if met is not None and met.end_ns > stride.begin_ns and max(stayed) >= stride.step:
                    self._join(place, at)
                    return True
        return False

    def is_apart(self, present: Iterable[str]) -> bool:
        """Whether somebody is."""
        return any(key in self.places and self.places[key].apart for key in present)

    def _begin_again(self, turned_ns: int) -> None:
        """What newcomers did since then is of the new generation, too, up to the next turn."""
        turns = [place.apart[1] for place in self.places.values() if len(place.apart) > 1]
        next_ns = min((strides[0][0].begin_ns for strides in turns), default=BEYOND)
        newer = [
            (at[1], self.meetings.pop(at))
            for at, meeting in list(self.meetings.items())
            if turned_ns <= meeting.begun_first_ns < next_ns
        ]
        self.generation += 1
        for place in self.places.values():
            if place.apart or place.since_ns < turned_ns:
                place.peak = None
            if place.apart:
                self._join(place, 0)
        for step, meeting in newer:
            found = self.meetings.setdefault((self.generation, step), meeting)
            if found is not meeting:
                found.merge(meeting)

    def _join(self, place: Place, first: int) -> None:
        for stride, rank in place.apart.pop(0)[first:]:
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
            "places": [[key, p.lap, p.since_ns, p.peak, p.apart] for key, p in self.places.items()],
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Muster:
        muster = cls(state["generation"], begun_ns=state["begun"])
        for generation, step, begin, last, gap, end, ended, inside, *rest in state["meetings"]:
            muster.meetings[generation, step] = Meeting(
                begin, last, list(_pieces(gap)), end, ended, list(_pieces(inside)), *rest
            )
        for key, lap, started, peak, apart in state["places"]:
            held = [[(_stride(stride), rank) for stride, rank in each] for each in apart]
            muster.places[key] = Place(lap, started, peak, held)
        return muster


def _is_there(track: Track, time_ns: int) -> bool:
    return not track.ended or track.now_ns > time_ns


def _stride(saved: Any) -> Stride:
    lap, step, since, begin, end, gap, inside = saved
    return Stride(lap, step, since, begin, end, list(_pieces(gap)), list(_pieces(inside)))


def _pieces(saved: Any) -> Iterator[Piece]:
    return ((start, end, spent) for start, end, spent in saved)
