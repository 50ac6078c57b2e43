"""Brings the ranks of an attempt together, step by step.

A step of the run is a *meeting*: it lasts from when the last rank began it until the last rank
ended it.  The rank that began it last decides what the time before it was.  All of these are maxima
over ranks, so the order in which ranks are heard makes no difference.

Ranks come and go.  The run goes back to an earlier step when all present ranks do: then a new
*generation* of steps begins.  A rank that goes back alone (it was replaced, or lost its state)
catches up with the others; the steps that it repeats meanwhile do not count for the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runwatch.views.goodput.steps.meetings import BEYOND, At, Meetings, pieces_of
from runwatch.views.goodput.steps.strides import Strides
from runwatch.views.goodput.steps.track import Stride, Track


@dataclass(slots=True)
class Place:
    """How far a rank has come."""

    lap: int
    since_ns: int
    """When the rank began its first step."""
    peak: int | None = None
    """The last step that the rank did in this generation; None: it has done none."""
    joined_at: int | None = None
    """The rank's first step, if it did that step with the others; None: it came in behind them."""
    apart: list[list[tuple[Stride, int]]] = field(default_factory=list)
    """What the rank did since it went back, or came in behind the others, which have not gone back;
    with its rank number.  One list for each time."""

    def copy(self) -> Place:
        return replace(self, apart=[list(strides) for strides in self.apart])


@dataclass(slots=True)
class Muster:
    generation: int = 0
    meetings: Meetings = field(default_factory=Meetings)
    places: dict[str, Place] = field(default_factory=dict)
    begun_ns: int | None = None
    """When the first step began."""
    newest_start_ns: int = -BEYOND
    """When the newest of the ranks was started that did not come in behind the others."""

    def take(
        self, track: Track, stride: Stride, reached: At | None, tracks: Iterable[Track] = ()
    ) -> At | None:
        """A rank completed a step; `reached` is the last booked step.

        `tracks`: all ranks, with the steps that they keep back.
        Returns where the step was put; None while that is not known.
        """
        key, rank = track.key, track.rank
        place = self.places.get(key)
        if place is None:
            pending = [other.pending for other in tracks if other.key != key and other.pending]
            begins = [stride.begin_ns, *(strides[0].begin_ns for strides in pending)]
            self.begun_ns = min(begins if self.begun_ns is None else [self.begun_ns, *begins])
            place = self.places[key] = Place(stride.lap, stride.begin_ns)
            if self._is_behind(track, stride, reached, pending):
                place.apart.append([])
            else:
                place.joined_at = stride.step
                self.newest_start_ns = max(self.newest_start_ns, track.start_ns)
        elif stride.lap != place.lap:
            place.lap = stride.lap
            place.apart.append([])
        if not place.apart:
            place.peak = stride.step
            return self.meetings.join(self.generation, stride, rank)
        place.apart[-1].append((stride, rank))
        return None

    def is_plain(self, track: Track, strides: Strides, reached: At | None) -> bool:
        """Whether the rank just goes on with these steps, and none of them is booked."""
        place = self.places.get(track.key)
        if place is None or place.apart or place.lap != strides.lap:
            return False
        if int(strides.ends[0]) <= self.newest_start_ns:
            return False
        return reached is None or (self.generation, strides.first) > reached

    def take_strides(self, track: Track, strides: Strides) -> None:
        """Takes many plain steps of a rank at once."""
        self.places[track.key].peak = strides.last
        self.meetings.join_all(self.generation, strides, track.rank)

    def is_out_of_order(self, track: Track, stride: Stride, tracks: Mapping[str, Track]) -> bool:
        """Whether another rank is thought to have joined at this step, although that rank was
        started after the step was done: it was heard of first, and really came in behind."""
        if stride.end_ns > self.newest_start_ns or self.begun_ns is None:
            return False
        begun_ns = max(stride.end_ns, self.begun_ns + 1)
        return any(
            place.joined_at == stride.step and key != track.key and tracks[key].start_ns >= begun_ns
            for key, place in self.places.items()
        )

    def _is_behind(
        self, track: Track, stride: Stride, reached: At | None, pending: Sequence[Sequence[Stride]]
    ) -> bool:
        """Whether the rank came after the others had done this step."""
        if self.begun_ns is None or track.start_ns <= self.begun_ns:
            return False
        if reached is not None and stride.step <= reached[1]:
            return True
        if any(
            other.step == stride.step and other.end_ns <= track.start_ns
            for strides in pending
            for other in strides
        ):
            return True
        met = self.meetings.get((self.generation, stride.step))
        return met is not None and met.ended_first_ns <= track.start_ns

    def settle(self, tracks: Mapping[str, Track]) -> None:
        """Begins a new generation if all present ranks have gone back.  A rank that went back alone
        rejoins the others once it does a step while they do it."""
        while self._settle(tracks):
            pass

    def _settle(self, tracks: Mapping[str, Track]) -> bool:
        """Returns whether anything changed."""
        apart = [place for place in self.places.values() if place.apart]
        if not apart:
            return False
        turned_ns = min(place.apart[0][0][0].begin_ns for place in apart)
        stayed = [
            place.peak or 0
            for key, place in self.places.items()
            if not place.apart and place.since_ns < turned_ns and _is_there(tracks[key], turned_ns)
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
        """Whether one of these ranks is apart from the others."""
        return any(key in self.places and self.places[key].apart for key in present)

    def _begin_again(self, turned_ns: int) -> None:
        """Steps of newcomers since then also belong to the new generation, up to the next turn."""
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
            self.meetings.merge((self.generation, step), meeting)

    def _join(self, place: Place, first: int) -> None:
        for stride, rank in place.apart.pop(0)[first:]:
            place.peak = stride.step
            self.meetings.join(self.generation, stride, rank)

    def passed(self, present: Iterable[str]) -> At | None:
        """The step that every present rank has reached; None if one has not begun."""
        least: At = (self.generation, BEYOND)
        for key in present:
            place = self.places.get(key)
            if place is None:
                return None
            if not place.apart and place.peak is not None:
                least = min(least, (self.generation, place.peak))
        return least

    def copy(self) -> Muster:
        places = {key: place.copy() for key, place in self.places.items()}
        return Muster(
            self.generation, self.meetings.copy(), places, self.begun_ns, self.newest_start_ns
        )

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "begun": self.begun_ns,
            "newest_start": self.newest_start_ns,
            "meetings": self.meetings.state(),
            "places": [
                [key, p.lap, p.since_ns, p.peak, p.joined_at, p.apart]
                for key, p in self.places.items()
            ],
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Muster:
        muster = cls(state["generation"], begun_ns=state["begun"])
        muster.newest_start_ns = state["newest_start"]
        muster.meetings = Meetings.of_state(state["meetings"])
        for key, lap, started, peak, joined_at, apart in state["places"]:
            held = [[(_stride(stride), rank) for stride, rank in each] for each in apart]
            muster.places[key] = Place(lap, started, peak, joined_at, held)
        return muster


def _is_there(track: Track, time_ns: int) -> bool:
    return not track.ended or track.now_ns > time_ns


def _stride(saved: Any) -> Stride:
    lap, step, since, begin, end, gap, inside = saved
    return Stride(lap, step, since, begin, end, pieces_of(gap), pieces_of(inside))
