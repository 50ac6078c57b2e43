"""All processes of a run, folded: what is recorded goes in, attempts come out.

State plus new records gives the next state, so a question after a hundred new steps costs a
hundred steps.  A step of the run lasts from when the last rank began it until the last rank ended
it, and the time before it is told by the rank that began it last: the run goes at the pace of its
slowest rank.  What is taken is a maximum over ranks, so the order in which ranks are heard does
not matter; a step is booked once every rank that does steps has passed it.

Booked steps stay as they are.  Should a rank be heard of late that may change one, `Stale` is
raised: whoever keeps the records folds them again, with all processes known and in the order of
their time, which is `lenient`: what then still comes late (a rank that does steps the others have
long done) has no say.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runwatch.views.goodput.books import Books, Cell
from runwatch.views.goodput.classes import ClassNames
from runwatch.views.goodput.track import Piece, Stale, Stride, Track

__all__ = ["Attempt", "AttemptKey", "Awaited", "Ledger", "Stale", "Tail"]

STATE_VERSION: Final = 2

AttemptKey = tuple[int, int]
"""The attempt that a process belongs to, and within it the how-manieth start that it recorded
itself (0 if it records none): a program that starts over in place makes two attempts."""

HELD_STEPS: Final = 64
"""Steps not booked yet while a process of the attempt may still begin to do steps, too."""


@dataclass(slots=True)
class _Meeting:
    """One step, as far as ranks were heard."""

    begin_ns: int
    begun_last: int
    gap: list[Piece]
    end_ns: int
    ended_last: int
    inside: list[Piece]
    begun_first_ns: int
    ranks: int = 1

    @classmethod
    def of(cls, stride: Stride, rank: int) -> _Meeting:
        begin = stride.begin_ns
        return cls(begin, rank, stride.gap, stride.end_ns, rank, stride.inside, begin)

    def join(self, stride: Stride, rank: int) -> None:
        # Ties go to the lower rank, so that the order of arrival never shows.
        if (stride.begin_ns, -rank) > (self.begin_ns, -self.begun_last):
            self.begin_ns, self.gap, self.begun_last = stride.begin_ns, stride.gap, rank
        if (stride.end_ns, -rank) > (self.end_ns, -self.ended_last):
            self.end_ns, self.inside, self.ended_last = stride.end_ns, stride.inside, rank
        self.begun_first_ns = min(self.begun_first_ns, stride.begin_ns)
        self.ranks += 1

    def copy(self) -> _Meeting:
        return replace(self)

    def cell(self, lap: int, step: int) -> Cell:
        return Cell(lap, step, self.begin_ns, self.gap, self.end_ns, self.inside)


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
    meetings: dict[tuple[int, int], _Meeting] = field(default_factory=dict)
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
        strides = [t.pending for t in self.tracks.values() if t.pending is not None]
        begun = [t.step for t in self.tracks.values() if t.step is not None]
        first = min([*self.meetings, *(stride[:2] for stride in strides)], default=None)
        return first[1] if first is not None else min(begun, default=None)

    @property
    def start_ns(self) -> int:
        return self.books.timeline.start_ns

    def enter(self, key: str, rank: int, start_ns: int) -> Track:
        if self.booked is not None and not self.lenient:
            raise Stale(f"rank {rank} joined attempt {self.key} after its steps were booked")
        if start_ns < self.start_ns and self.booked is None:
            self.books = Books(start_ns)
        track = self.tracks[key] = Track(key, rank, start_ns, self.take, self.take_run)
        return track

    def take(self, track: Track, stride: Stride) -> None:
        lap, step, _, begin, end, gap, inside = stride
        if self.is_alone:
            self.books.add(Cell(lap, step, begin, gap, end, inside))
            self.booked = lap, step
            return
        at = lap, step
        if self.booked is not None and at <= self.booked:
            if self.lenient:
                return
            raise Stale(f"rank {track.rank} told of step {step} after it was booked")
        _meet(self.meetings, at, stride, track.rank)

    def take_run(self, step: int, times: array[int]) -> int:
        """Steps from `step` on, each lasting until the next; how many of them could be booked."""
        if not self.is_alone or self.booked is None:
            return 0
        lap, last = self.booked
        if step != last + 1:
            return 0
        booked = self.books.extend(step, times)
        self.booked = lap, last + booked
        return booked

    def book(self) -> None:
        """Book what every rank has passed."""
        for track in self.tracks.values():
            if track.ended and not self.is_alone:
                # Nobody waits for it any more, so its last step is handed on now.
                track.flush() if self.lenient else track.close_step()
        if not self.meetings:
            return
        present = [track for track in self.tracks.values() if not track.ended]
        passed = min((track.handed for track in present if track.handed), default=None)
        ready = sorted(at for at in self.meetings if passed is None or at <= passed)
        missing = len(self.tracks) < self.expected
        if missing or passed is None or any(track.handed is None for track in present):
            ready = ready[: max(0, len(self.meetings) - HELD_STEPS)]
        for at in ready:
            meeting = self.meetings.pop(at)
            self.books.add(meeting.cell(*at))
            _await(self.awaited, meeting)
            self.booked = at

    def tail(self, prior_ns: int | None) -> Tail:
        """The rest, booked in books that go on where ours end; ours stay as they are."""
        books = self.books.fork()
        meetings = {at: meeting.copy() for at, meeting in self.meetings.items()}
        for track in self.tracks.values():
            if track.pending is not None and (
                self.booked is None or track.pending[:2] > self.booked
            ):
                _meet(meetings, track.pending[:2], track.pending, track.rank)
        if meetings and not self._is_done(max(meetings)):
            del meetings[max(meetings)]
        awaited = {rank: Awaited(a.steps, a.nanoseconds) for rank, a in self.awaited.items()}
        for at in sorted(meetings):
            books.add(meetings[at].cell(*at))
            _await(awaited, meetings[at])
        books.settle(prior_ns)
        return Tail(books, awaited)

    def _is_done(self, last: tuple[int, int]) -> bool:
        """Whether the last step that a rank ended is done: no rank is still in it, or one is in
        the next.  (A rank that fails leaves its step, too.)"""
        at = [(track.lap, track.step) for track in self.tracks.values() if track.step is not None]
        return last not in at or max(at) > last

    # ── saved ─────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "books": self.books.state(),
            "tracks": [track.state() for track in self.tracks.values()],
            "meetings": [
                [*at, *(getattr(meeting, name) for name in _Meeting.__slots__)]
                for at, meeting in self.meetings.items()
            ],
            "awaited": [[rank, a.steps, a.nanoseconds] for rank, a in self.awaited.items()],
            "booked": self.booked,
            "lenient": self.lenient,
            "expected": self.expected,
        }  # fmt: skip

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Attempt:
        attempt = cls(tuple(state["key"]), Books.of_state(state["books"]))
        for saved in state["tracks"]:
            track = Track.of_state(saved, attempt.take, attempt.take_run)
            attempt.tracks[track.key] = track
        for lap, step, begin, last, gap, end, ended, inside, first, ranks in state["meetings"]:
            pieces = [[tuple(piece) for piece in found] for found in (gap, inside)]
            attempt.meetings[lap, step] = _Meeting(
                begin, last, pieces[0], end, ended, pieces[1], first, ranks
            )
        attempt.awaited = {rank: Awaited(steps, ns) for rank, steps, ns in state["awaited"]}
        attempt.booked = None if state["booked"] is None else tuple(state["booked"])
        attempt.lenient, attempt.expected = state["lenient"], state["expected"]
        return attempt


def _meet(
    meetings: dict[tuple[int, int], _Meeting], at: tuple[int, int], stride: Stride, rank: int
) -> None:
    found = meetings.get(at)
    if found is None:
        meetings[at] = _Meeting.of(stride, rank)
    else:
        found.join(stride, rank)


def _await(awaited: dict[int, Awaited], meeting: _Meeting) -> None:
    if meeting.ranks > 1 and meeting.begin_ns > meeting.begun_first_ns:
        mine = awaited.setdefault(meeting.begun_last, Awaited())
        mine.steps += 1
        mine.nanoseconds += meeting.begin_ns - meeting.begun_first_ns


class Ledger:
    """The fold of one run."""

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.names = ClassNames()
        self._announced: dict[int, set[str]] = {}

    def announce(self, attempt: int, key: str) -> None:
        """This process belongs to the attempt; the others' steps wait for it for a while."""
        known = self._announced.setdefault(attempt, set())
        known.add(key)
        for (number, _), found in self.attempts.items():
            if number == attempt:
                found.expected = len(known)

    def track(self, key: str, *, attempt: AttemptKey, rank: int, start_ns: int) -> Track:
        """The track of a process; made when it is new.  `Stale` if it comes too late."""
        found = self.attempts.get(attempt)
        if found is None:
            expected = len(self._announced.get(attempt[0], ()))
            found = Attempt(attempt, Books(start_ns), lenient=self.lenient, expected=expected)
            self.attempts[attempt] = found
        known = found.tracks.get(key)
        return found.enter(key, rank, start_ns) if known is None else known

    def forget(self, attempt: AttemptKey, key: str) -> None:
        """A process that was expected to tell its own story does not."""
        found = self.attempts.get(attempt)
        if found is not None and found.tracks.pop(key, None) is not None and not found.tracks:
            del self.attempts[attempt]

    def settle(self) -> None:
        """Book what can be booked; call it after each batch."""
        for attempt in self.attempts.values():
            attempt.book()

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
