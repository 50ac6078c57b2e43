"""A hang in words: the sentence that a person reads first, and what to look at next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runwatch.views.diagnosis.evidence import Seat, child_waits, locked_threads, why_unseen
from runwatch.views.diagnosis.frames import HOLDS_GIL, Wait
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.times import to_the_second

MOST_GROUPS: Final = 4
"""A sentence names this many groups; the rest are "elsewhere"."""
A_THREAD: Final = "a thread to end"
_ONE: Final[Mapping[str, str]] = {"wait": "waits", "are": "is", "sleep": "sleeps", "run": "runs"}
"""A verb for several ranks → the verb for one."""


def doing(wait: Wait, one: bool = True) -> str:
    """`waits in all_reduce (train.py:88)`; `wait in …` for several ranks."""
    if wait.kind == "running" and wait.detail == HOLDS_GIL:
        return f"{'is' if one else 'are'} in native code, {HOLDS_GIL}{wait.place}"
    verb, rest = _doing(wait)
    words = f"{_ONE[verb] if one else verb} {rest}".rstrip()
    return f"{words}, {wait.detail}" if wait.detail == HOLDS_GIL else words


def _doing(wait: Wait) -> tuple[str, str]:
    """The verb, and the words after it."""
    what, place = wait.what, wait.place
    if wait.kind in ("collective", "peer"):
        return "wait", f"in {what}{place}"
    if wait.kind == "device":
        return "wait", f"for the device in {what}{place}"
    if wait.kind in ("lock", "subprocess"):
        return "wait", f"for {what}{place}"
    if wait.kind in ("socket", "pipe", "file"):
        return "wait", f"in {what}{place}"
    if wait.kind in ("transfer", "await", "idle"):
        return "wait", f"{'at' if wait.kind == 'idle' else 'for'} {what}{place}"
    if wait.kind == "sleep":
        return "sleep", place.strip()
    if wait.kind == "running":
        return "run", what + _within(wait)
    if wait.kind == "unknown":
        return "are", ("in " + what if what else "in a place that the stack does not show") + place
    return "are", f"in {what}{place}"


def _within(wait: Wait) -> str:
    if wait.where is None:
        return ""
    return f" in {wait.where.name} ({wait.where.place})"


def seats_in_words(seats: Sequence[Seat], *, since: bool = False) -> str:
    """Ranks in the same place: `ranks 0–6 wait in all_reduce (train.py:88)`."""
    first, one = seats[0], len(seats) == 1
    words = f"{ranks_in_words(seat.rank for seat in seats)} {_state(first, one)}"
    times = [seat.evidence.since_ns for seat in seats if seat.evidence.since_ns is not None]
    if since and times and first.evidence.ended is None:
        words += f" since {to_the_second(min(times))}"
    return words + (_more(first) if one else "")


def _state(seat: Seat, one: bool) -> str:
    ended = seat.evidence.ended
    if ended is not None:
        return f"{ended.words} at {to_the_second(ended.time_ns)}" if one else ended.words_of_many
    verb = "is" if one else "are"
    if seat.is_gone:
        return f"{verb} dead, but its parent has not collected it (state {seat.state})"
    if seat.is_stopped:
        return f"{verb} stopped (state {seat.state}: SIGSTOP or a debugger)"
    if seat.wait is None:
        return f"could not be looked at: {why_unseen(seat.evidence)}"
    return doing(seat.wait, one)


def _more(seat: Seat) -> str:
    """More about a rank: its worker processes, its other threads."""
    words = ""
    if seat.wait is not None and seat.wait.kind in ("data", "subprocess", "pipe"):
        for pid, wait in child_waits(seat)[:2]:
            words += f"; its {_child(wait)} {pid} {_inside(wait)}"
    if seat.wait is not None and seat.wait.kind in ("lock", "unknown"):
        words += _locks(seat)
    return words


def _child(wait: Wait) -> str:
    return "worker process" if wait.kind == "data" else "child process"


def _inside(wait: Wait) -> str:
    """A worker always loads data, so a person wants to know the line of the dataset."""
    if wait.kind != "data" or wait.where is None:
        return doing(wait)
    how = f", in {wait.detail}" if wait.detail else ""
    return f"is in {wait.where.function} ({wait.where.place}){how}"


def _locks(seat: Seat) -> str:
    locked = locked_threads(seat)
    others = [(t, where) for t, where in locked if seat.thread is None or t != seat.thread]
    also = ", ".join(f"{thread.name or 'a thread'} ({where.place})" for thread, where in others[:3])
    if others and any(thread == seat.thread for thread, _ in locked):
        return (
            f"; so {'does' if len(others) == 1 else 'do'} {also}: they may hold each other's lock"
        )
    if others and seat.wait is not None and seat.wait.what == A_THREAD:
        one = len(others) == 1
        words = f"; {also} {'waits' if one else 'wait'} for a lock"
        return words if one else f"{words}: they may hold each other's"
    if seat.wait is not None and seat.wait.what == "a lock" and len(seat.threads) == 1:
        return "; no other thread is left that could release it"
    return ""
