"""All processes of a run, folded: what is recorded goes in, attempts come out.

State plus new records gives the next state, so a question after a hundred new steps costs a
hundred steps.  Ranks meet step by step (`muster.py`): the run goes at the pace of its slowest.  A
step is booked once every rank that does steps has passed it.

Booked steps stay as they are.  Should a rank be heard of late that may change one, `Stale` is
raised: whoever keeps the records folds them again, with all processes known and in the order of
their time, which is `lenient`: what then still comes late (a rank that does steps the others have
long done) has no say.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import sub
from typing import TYPE_CHECKING, Any, Final

from runwatch.record import Points
from runwatch.views.goodput.books import Books
from runwatch.views.goodput.classes import ClassNames
from runwatch.views.goodput.skew import Skew
from runwatch.views.goodput.steps.cells import Cell, Cells
from runwatch.views.goodput.steps.judging import FEW, Pace
from runwatch.views.goodput.steps.meetings import BEYOND, Awaiting
from runwatch.views.goodput.steps.muster import Muster
from runwatch.views.goodput.steps.strides import Strides
from runwatch.views.goodput.steps.track import Stale, Stride, Track

__all__ = ["Attempt", "AttemptKey", "Awaited", "Ledger", "Stale", "Tail"]

STATE_VERSION: Final = 6

AttemptKey = tuple[int, int]
"""The attempt that a process belongs to, and within it the how-manieth start that it recorded
itself (0 if it records none): a program that starts over in place makes two attempts."""

HELD_STEPS: Final = 64
"""Steps not booked yet while a process of the attempt may still begin to do steps, too."""

if TYPE_CHECKING:
    Takers = tuple[
        Callable[[Track, Stride], None],
        Callable[[int, array[int]], int],
        Callable[[Track, Strides], None],
    ]


@dataclass(slots=True)
class Awaited:
    """How long the first rank at a step waited for this one, the last, to begin it."""

    steps: int = 0
    nanoseconds: int = 0


@dataclass(slots=True)
class Tail:
    """What is known of an attempt beyond its booked steps, as of now."""

    books: Books
    awaited: Mapping[int, Awaited]


@dataclass(slots=True)
class Attempt:
    key: AttemptKey
    books: Books
    tracks: dict[str, Track] = field(default_factory=dict)
    muster: Muster = field(default_factory=Muster)
    skew: Skew = field(default_factory=Skew)
    awaited: dict[int, Awaited] = field(default_factory=dict)
    booked: tuple[int, int] | None = None
    lenient: bool = False
    expected: int = 0
    """Processes that were announced for it."""

    @property
    def is_alone(self) -> bool:
        return len(self.tracks) == 1 and self.expected <= 1

    @property
    def first_step(self) -> int | None:
        """The first step that it began."""
        if self.booked is not None:
            return self.books.first_step
        strides = [t.pending[0] for t in self.tracks.values() if t.pending]
        begun = [t.step for t in self.tracks.values() if t.step is not None]
        held = self.muster.meetings
        first = min([*held, *(stride[:2] for stride in strides)], default=None)
        return first[1] if first is not None else min(begun, default=None)

    @property
    def has_pace(self) -> bool:
        """Whether it did enough steps to tell how long one takes."""
        return any(track.steps > FEW for track in self.tracks.values())

    @property
    def start_ns(self) -> int:
        return self.books.timeline.start_ns

    def enter(self, key: str, rank: int, start_ns: int) -> Track:
        if self.booked is not None and not self.lenient:
            raise Stale(f"rank {rank} joined attempt {self.key} after its steps were booked")
        if start_ns < self.start_ns and self.booked is None:
            arrivals, self.books = self.books.arrivals, Books(start_ns)
            self.books.arrivals = arrivals
        track = self.tracks[key] = Track(key, rank, start_ns, *self.takers)
        return track

    @property
    def takers(self) -> Takers:
        """What a track hands its steps on to."""
        return self.take, self.take_run, self.take_strides

    def take(self, track: Track, stride: Stride) -> None:
        lap, step, _, begin, end, gap, inside = stride
        if self.is_alone:
            self.booked = self.books.take(Cell(lap, step, begin, gap, end, inside))
            return
        self.skew.saw(track.key, lap, step, end)
        at = self.muster.take(track, stride, self.booked, self.tracks.values())
        if at is not None and self.booked is not None and at <= self.booked:
            del self.muster.meetings[at]
            if not self.lenient:
                raise Stale(f"rank {track.rank} told of step {step} after it was booked")
        if not self.lenient and self.muster.is_out_of_order(track, stride, self.tracks):
            raise Stale(f"rank {track.rank} told of step {step} after one that came behind it")

    def take_strides(self, track: Track, strides: Strides) -> None:
        """As many steps, taken at once where they are nothing out of the ordinary."""
        if self.is_alone:
            self.booked = self.books.take(Cells.of(strides))
            return
        rest = strides
        if track.key not in self.muster.places:
            self.take(track, next(strides.each()))
            rest = strides.between(1, len(strides))
        if not self.muster.is_plain(track, rest, self.booked):
            for stride in rest.each():
                self.take(track, stride)
            return
        self.skew.saw_some(track.key, rest)
        self.muster.take_strides(track, rest)

    def take_run(self, step: int, times: array[int]) -> int:
        """Steps from `step` on, each lasting until the next; how many of them could be booked."""
        if not self.is_alone or self.booked is None:
            return 0
        lap, last = self.booked
        if step != last + 1 or min(map(sub, islice(times, 1, None), times)) < 0:
            return 0
        self.books.extend(lap, step, times)
        booked = len(times) - 1
        self.booked = lap, last + booked
        return booked

    def book(self) -> None:
        """Book what every rank has passed."""
        for track in self.tracks.values():
            if track.ended and not self.is_alone:
                # Nobody waits for it any more, so its last step is handed on now.
                track.flush() if self.lenient else track.close_step()
        muster = self.muster
        if all(key in muster.places or not t.pending for key, t in self.tracks.items()):
            # Else a rank has yet to say whether it went back with the others, or stayed.
            muster.settle(self.tracks)
        if not muster.meetings:
            return
        passed = muster.passed(self._present)
        until = passed or (muster.generation, BEYOND)
        waiting = passed is None or len(self.tracks) < self.expected
        most = BEYOND
        if waiting or muster.is_apart(self._present):
            most = max(0, len(muster.meetings) - HELD_STEPS)
        for cells, awaiting in muster.meetings.taken(until, most):
            self.booked = self.books.take(cells)
            _await(self.awaited, awaiting)

    @property
    def _present(self) -> list[str]:
        return [key for key, track in self.tracks.items() if not track.ended]

    def tail(self, prior: Pace, *, only_begun: bool = False) -> Tail:
        """The rest, booked in books that go on where ours end; ours stay as they are."""
        books = self.books.fork()
        awaited = {rank: Awaited(a.steps, a.nanoseconds) for rank, a in self.awaited.items()}
        if self.is_alone:
            for track in self.tracks.values():
                for lap, step, _, begin, end, gap, inside in track.pending:
                    books.take(Cell(lap, step, begin, gap, end, inside))
        else:
            meetings = self._mustered().meetings
            if self.booked is not None:
                meetings.taken(self.booked)
            for cells, awaiting in meetings.taken((BEYOND, BEYOND)):
                books.take(cells)
                _await(awaited, awaiting)
        books.settle(prior, only_begun=only_begun)
        return Tail(books, awaited)

    def _mustered(self) -> Muster:
        """With what is still kept back; a last step that is not done is left out."""
        muster = self.muster.copy()
        for track in self.tracks.values():
            for stride in track.pending:
                muster.take(track, stride, self.booked, self.tracks.values())
        muster.settle(self.tracks)
        if muster.meetings and not self._is_done(max(muster.meetings)[1]):
            del muster.meetings[max(muster.meetings)]
        return muster

    def _is_done(self, last: int) -> bool:
        """Whether the last step that a rank ended is done: no rank is still in it, or one is in
        the next.  (A rank that fails leaves its step, too.)"""
        at = [track.step for track in self.tracks.values() if track.step is not None]
        return last not in at or max(at) > last

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "books": self.books.state(),
            "tracks": [track.state() for track in self.tracks.values()],
            "muster": self.muster.state(),
            "skew": self.skew.state(),
            "awaited": [[rank, a.steps, a.nanoseconds] for rank, a in self.awaited.items()],
            "booked": self.booked,
            "lenient": self.lenient,
            "expected": self.expected,
        }  # fmt: skip

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Attempt:
        attempt = cls(tuple(state["key"]), Books.of_state(state["books"]))
        for saved in state["tracks"]:
            track = Track.of_state(saved, *attempt.takers)
            attempt.tracks[track.key] = track
        attempt.muster = Muster.of_state(state["muster"])
        attempt.skew = Skew.of_state(state["skew"])
        attempt.awaited = {rank: Awaited(steps, ns) for rank, steps, ns in state["awaited"]}
        attempt.booked = None if state["booked"] is None else tuple(state["booked"])
        attempt.lenient, attempt.expected = state["lenient"], state["expected"]
        return attempt


def _await(awaited: dict[int, Awaited], awaiting: Awaiting) -> None:
    for rank, steps, nanoseconds in awaiting:
        mine = awaited.setdefault(rank, Awaited())
        mine.steps += steps
        mine.nanoseconds += nanoseconds


class Ledger:
    """The fold of one run."""

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.names = ClassNames()
        self.fresh: set[int] = set()
        """Attempts that go on from nothing: those before them were complete."""
        self._announced: dict[int, set[str]] = {}

    def announce(self, attempt: int, key: str) -> None:
        """This process belongs to the attempt; the others' steps wait for it for a while."""
        known = self._announced.setdefault(attempt, set())
        known.add(key)
        for (number, _), found in self.attempts.items():
            if number == attempt:
                found.expected = len(known)

    def track(
        self, key: str, *, attempt: AttemptKey, rank: int, start_ns: int, host: str = ""
    ) -> Track:
        """The track of a process; made when it is new.  `Stale` if it comes too late."""
        found = self.attempts.get(attempt)
        if found is None:
            expected = len(self._announced.get(attempt[0], ()))
            found = Attempt(attempt, Books(start_ns), lenient=self.lenient, expected=expected)
            self.attempts[attempt] = found
        known = found.tracks.get(key)
        if known is None:
            known = found.enter(key, rank, start_ns)
            known.host = host
        return known

    def ahead_ns(self) -> dict[int, dict[str, int]]:
        """By attempt and host: how far a clock is ahead of the others' beyond what is known of it;
        nothing for hosts that go with the others."""
        found: dict[int, dict[str, int]] = {}
        for (number, _), attempt in self.attempts.items():
            if len(attempt.tracks) > 1 and (ahead := attempt.skew.ahead_ns(attempt.tracks)):
                found[number] = ahead
        return found

    def dispatches(self, track: Track, synchronous: bool | None) -> None:
        """Whether a step's work is done when the call returns that began it (None: not known); if
        it is for all ranks, nothing can hide behind a device."""
        track.synchronous = synchronous is True
        for attempt in self.attempts.values():
            if attempt.tracks.get(track.key) is track:
                attempt.books.synchronous = all(t.synchronous for t in attempt.tracks.values())
                if synchronous is False:
                    attempt.books.on_device = True
                    attempt.books.on_gpu = attempt.books.on_gpu or track.has_gpu

    def arrived(
        self, attempt: AttemptKey, key: str, points: Points, series: Collection[int]
    ) -> None:
        """When values of a process's steps were there."""
        found = self.attempts.get(attempt)
        if found is not None:
            found.books.arrivals.tell(key, points, series)

    def forget(self, attempt: AttemptKey, key: str) -> None:
        """A process that was expected to tell its own story does not."""
        found = self.attempts.get(attempt)
        if found is not None and found.tracks.pop(key, None) is not None and not found.tracks:
            del self.attempts[attempt]

    def settle(self) -> None:
        """Book what can be booked; call it after each batch."""
        before = 1
        for key in sorted(self.attempts):
            attempt = self.attempts[key]
            # Not the most that was ever thought: an attempt in between may have done no steps yet.
            attempt.books.capacity_before = 1 if key[0] in self.fresh else before
            attempt.book()
            before = len({t.rank for t in attempt.tracks.values() if t.steps}) or before

    def end(self, keys: Iterable[str]) -> None:
        """These processes are gone: nobody need wait for them."""
        gone = set(keys)
        for attempt in self.attempts.values():
            for key in gone & attempt.tracks.keys():
                attempt.tracks[key].ended = True

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        """The whole of it, to go on from later: plain values, but for columns of numbers."""
        return {
            "version": STATE_VERSION,
            "custom": self.names.custom,
            "lenient": self.lenient,
            "fresh": sorted(self.fresh),
            "announced": [[n, sorted(keys)] for n, keys in self._announced.items()],
            "attempts": [attempt.state() for attempt in self.attempts.values()],
        }

    @classmethod
    def of_state(cls, state: Any) -> Ledger:
        """Raises ValueError for what is not a state of this version."""
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise ValueError(f"not a goodput state of version {STATE_VERSION}")
        ledger = cls(lenient=state["lenient"])
        ledger.names = ClassNames(tuple(state["custom"]))
        ledger.fresh = set(state["fresh"])
        ledger._announced = {number: set(keys) for number, keys in state["announced"]}
        for saved_attempt in state["attempts"]:
            attempt = Attempt.of_state(saved_attempt)
            ledger.attempts[attempt.key] = attempt
        return ledger

    def save(self) -> bytes:
        """As JSON, with its columns packed; `saving.py` has a quicker way for long runs."""
        return json.dumps(self.state(), default=_packed).encode()

    @classmethod
    def load(cls, saved: bytes) -> Ledger:
        return cls.of_state(json.loads(saved, object_hook=_unpacked))


def _packed(column: object) -> dict[str, str]:
    if not isinstance(column, array):
        raise TypeError(f"cannot save {type(column).__name__}")
    return {"array": column.typecode, "data": base64.b64encode(column.tobytes()).decode()}


def _unpacked(value: dict[str, Any]) -> Any:
    if value.keys() == {"array", "data"}:
        column: array[int] = array(value["array"])
        column.frombytes(base64.b64decode(value["data"]))
        return column
    return value
