"""The fold of a run's records: records go in, attempts come out.

The old state plus new records gives the new state, so a question after a hundred new steps costs a
hundred steps.  Ranks meet step by step (`muster.py`): the run is as fast as its slowest rank.  A
step is booked once every rank that does steps has passed it.

Booked steps never change.  A late record that might change one raises `Stale`.  The caller then
folds all records again, `lenient`: with all processes known and in order of time.  Records that
still come late (a rank does steps that the others did long ago) are then ignored.
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
"""The attempt of a process, and which of its own recorded starts this is (0 if it records none): a
program that starts over in place makes two attempts."""

HELD_STEPS: Final = 64
"""This many steps may wait to be booked while a process of the attempt has not begun its steps."""

if TYPE_CHECKING:
    Takers = tuple[
        Callable[[Track, Stride], None],
        Callable[[int, array[int]], int],
        Callable[[Track, Strides], None],
    ]


@dataclass(slots=True)
class Awaited:
    """How long the first rank at a step waited for this rank, the last, to begin it."""

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
        """The first step that the attempt began."""
        if self.booked is not None:
            return self.books.first_step
        strides = [t.pending[0] for t in self.tracks.values() if t.pending]
        begun = [t.step for t in self.tracks.values() if t.step is not None]
        held = self.muster.meetings
        first = min([*held, *(stride[:2] for stride in strides)], default=None)
        return first[1] if first is not None else min(begun, default=None)

    @property
    def has_pace(self) -> bool:
        """Whether the attempt did enough steps to tell how long one takes."""
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
        """The functions that a track passes its steps to."""
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
        """Takes many steps, at once where they are plain."""
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
        """Takes plain steps from `step` on, each lasting until the next time; returns how many
        could be booked."""
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
        """Books the steps that every rank has passed."""
        for track in self.tracks.values():
            if track.ended and not self.is_alone:
                # No rank waits for this one any more, so its last step can go on.
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
        """The steps not yet booked, booked in a copy of the books; the books stay as they are."""
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
        """The muster with the steps that tracks still keep back, without a last step that is not
        done."""
        muster = self.muster.copy()
        for track in self.tracks.values():
            for stride in track.pending:
                muster.take(track, stride, self.booked, self.tracks.values())
        muster.settle(self.tracks)
        if muster.meetings and not self._is_done(max(muster.meetings)[1]):
            del muster.meetings[max(muster.meetings)]
        return muster

    def _is_done(self, last: int) -> bool:
        """Whether the last step that a rank ended is done: no rank is still in it, or one is in the
        next.  (A rank that fails also leaves its step.)"""
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
        """Attempts that begin anew: the attempt before each was complete."""
        self._announced: dict[int, set[str]] = {}

    def announce(self, attempt: int, key: str) -> None:
        """Announces a process of the attempt.  The other ranks' steps wait for it for a while."""
        known = self._announced.setdefault(attempt, set())
        known.add(key)
        for (number, _), folded in self.attempts.items():
            if number == attempt:
                folded.expected = len(known)

    def track(
        self, key: str, *, attempt: AttemptKey, rank: int, start_ns: int, host: str = ""
    ) -> Track:
        """The track of a process, made if it is new.  Raises `Stale` if it comes too late."""
        folded = self.attempts.get(attempt)
        if folded is None:
            expected = len(self._announced.get(attempt[0], ()))
            folded = Attempt(attempt, Books(start_ns), lenient=self.lenient, expected=expected)
            self.attempts[attempt] = folded
        known = folded.tracks.get(key)
        if known is None:
            known = folded.enter(key, rank, start_ns)
            known.host = host
        return known

    def ahead_ns(self) -> dict[int, dict[str, int]]:
        """By attempt and host: how far the host's clock is ahead, beyond what is already
        corrected.  Hosts whose clocks agree are left out."""
        by_attempt: dict[int, dict[str, int]] = {}
        for (number, _), attempt in self.attempts.items():
            if len(attempt.tracks) > 1 and (ahead := attempt.skew.ahead_ns(attempt.tracks)):
                by_attempt[number] = ahead
        return by_attempt

    def dispatches(self, track: Track, synchronous: bool | None) -> None:
        """Says whether a step's work is done when the call that began it returns (None: not
        known).  If so for all ranks, no device works in the background."""
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
        """Adds the arrivals of values of a process's steps."""
        folded = self.attempts.get(attempt)
        if folded is not None:
            folded.books.arrivals.tell(key, points, series)

    def forget(self, attempt: AttemptKey, key: str) -> None:
        """Forgets the track of a process that records its own starts: it gets other tracks."""
        folded = self.attempts.get(attempt)
        if folded is not None and folded.tracks.pop(key, None) is not None and not folded.tracks:
            del self.attempts[attempt]

    def settle(self) -> None:
        """Books all steps that can be booked; to be called after each batch."""
        before = 1
        for key in sorted(self.attempts):
            attempt = self.attempts[key]
            # Not the most that was ever thought: an attempt in between may have done no steps yet.
            attempt.books.capacity_before = 1 if key[0] in self.fresh else before
            attempt.book()
            before = len({t.rank for t in attempt.tracks.values() if t.steps}) or before

    def end(self, keys: Iterable[str]) -> None:
        """These processes have ended: no rank waits for them."""
        gone = set(keys)
        for attempt in self.attempts.values():
            for key in gone & attempt.tracks.keys():
                attempt.tracks[key].ended = True

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        """The whole state, to go on from later: plain values, and columns of numbers."""
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
        """Raises ValueError for a state of another version."""
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
        """The state as JSON, with packed columns; `saving.py` is quicker for long runs."""
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
