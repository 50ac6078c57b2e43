"""A rank has ended, and others wait for it or went down after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runwatch.views.diagnosis.blame import Blame, Confidence
from runwatch.views.diagnosis.evidence import Seat
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Scene
from runwatch.views.diagnosis.standing import Standing

FEW_STEPS: Final = 3
"""Ranks that did this many more steps did not wait for a rank that had ended."""
CLEARLY_FIRST_NS: Final = 1_000_000_000
"""Clocks of hosts differ: a rank ended first only if it ended this much earlier."""
LONG_AFTER_NS: Final = 60_000_000_000
_FATAL: Final = frozenset(("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS"))
"""Signals that are rarely sent to clean up after another rank's failure."""
_OF_A_PEER: Final = (
    "closed by peer", "reset by peer", "read error", "write error", "broken pipe", "timed out",
    "timeout", "watchdog", "remote process exited", "remote error", "communicator was aborted",
    "ncclremoteerror", "ncclsystemerror", "connection refused", "socket closed",
)  # fmt: skip
"""Words in errors that another rank's end causes."""


def blame(scene: Scene) -> Blame | None:
    gone = _gone_lately(scene)
    bad = [seat for seat in gone if seat.evidence.ended is None or not seat.evidence.ended.ok]
    if not bad:
        return _finished_early(scene, gone) if gone else None
    causes = [seat for seat in bad if len(bad) == 1 or not _was_told_to_end(seat)]
    causes = [seat for seat in causes if not _died_of_another(seat)]
    if not causes and scene.seen:
        return None  # another rank took these ranks down
    first = _first_to_end(causes)
    if first is None or _is_doubtful(first, scene):
        return _unclear(scene, bad)
    sure = len(bad) == 1 or _is_fatal(first)
    return _named(first, "certain" if sure and (scene.waiting or not scene.seen) else "likely")


def _gone_lately(scene: Scene) -> list[Seat]:
    """Without ranks that ended steps ago: the others went on without them."""
    steps = [seat.evidence.last_step for seat in scene.seats]
    newest = max((step for step in steps if step is not None), default=None)
    return [seat for seat in scene.gone if not _left_long_ago(seat, newest)]


def _left_long_ago(seat: Seat, newest: int | None) -> bool:
    step = seat.evidence.last_step
    return newest is not None and step is not None and newest - step >= FEW_STEPS


# ── which of them was first ────────────────────────────────────────────────────────────────────


def _first_to_end(causes: Sequence[Seat]) -> Seat | None:
    """The only rank that no other rank can have taken down, or the one that clearly ended first."""
    fatal = [seat for seat in causes if _is_fatal(seat)]
    for candidates in (fatal, causes):
        if len(candidates) == 1:
            return candidates[0]
    return _clearly_first(fatal or causes)


def _clearly_first(seats: Sequence[Seat]) -> Seat | None:
    timed = [(s.evidence.ended.time_ns, s.rank, s) for s in seats if s.evidence.ended is not None]
    if len(timed) < max(len(seats), 2):
        return None
    (first_ns, _, first), (second_ns, _, _) = sorted(timed)[:2]
    return first if second_ns - first_ns >= CLEARLY_FIRST_NS else None


def _is_doubtful(first: Seat, scene: Scene) -> bool:
    """Watchdogs end ranks that wait, and people end runs that hang."""
    elsewhere = [seat for seat in scene.elsewhere if not seat.moves and seat.waits_for.where]
    if _is_fatal(first):
        return bool(elsewhere) and _stood_still_before(first, elsewhere)
    return bool(elsewhere) or _stood_still_before(first, scene.waiting)


def _stood_still_before(seat: Seat, others: Sequence[Seat]) -> bool:
    """Whether the others had stood still for long when this rank ended."""
    ended = seat.evidence.ended
    since = [s.evidence.since_ns for s in others if s.evidence.since_ns is not None]
    return ended is not None and bool(since) and ended.time_ns - max(since) > LONG_AFTER_NS


def _died_of_another(seat: Seat) -> bool:
    ended = seat.evidence.ended
    return ended is not None and any(words in ended.reason.lower() for words in _OF_A_PEER)


def _was_told_to_end(seat: Seat) -> bool:
    return seat.evidence.ended is not None and seat.evidence.ended.signal == "SIGTERM"


def _is_fatal(seat: Seat) -> bool:
    ended = seat.evidence.ended
    return ended is not None and ended.signal in _FATAL


# ── the answer ─────────────────────────────────────────────────────────────────────────────────


def _named(seat: Seat, confidence: Confidence) -> Blame:
    ended = seat.evidence.ended
    reason = (ended.reason,) if ended is not None and ended.reason else ()
    return Blame("ended", (seat.rank,), confidence, reason, standing=Standing("stuck"))


def _finished_early(scene: Scene, gone: Sequence[Seat]) -> Blame | None:
    if not scene.waiting or scene.elsewhere or len(gone) * 2 > len(scene.seats):
        return None
    ranks = tuple(seat.rank for seat in gone)
    words = f"{ranks_in_words(ranks)} ended without an error; the others still wait"
    return Blame("ended", ranks, "likely", (words,), standing=Standing("stuck"))


def _unclear(scene: Scene, bad: Sequence[Seat]) -> Blame:
    who = ranks_in_words(seat.rank for seat in bad)
    words = f"{who} ended badly; it is not clear which ended first"
    if scene.elsewhere:
        others = ranks_in_words(seat.rank for seat in scene.elsewhere)
        words = f"{who} ended badly, and {others} did not wait for it"
    look_at = ("the logs of the ranks that ended",)
    return Blame("ended", (), "cannot tell", (words,), look_at, standing=Standing("stuck"))
