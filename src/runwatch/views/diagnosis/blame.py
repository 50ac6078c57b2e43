"""Rules that name the rank which keeps the others waiting.

Each looks at the whole scene; the first in `RULES` that answers decides.  `certain` is kept for
what a process's end or state shows by itself; `likely` is a clear difference between ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from runwatch.views.diagnosis.evidence import Seat
from runwatch.views.diagnosis.flight import Finding
from runwatch.views.diagnosis.progress import ranks_in_words
from runwatch.views.diagnosis.scene import Group, Scene, grouped

Confidence = Literal["certain", "likely", "cannot tell"]

ENOUGH: Final = 3
"""Fewer ranks are no majority against one."""
FEW_STEPS: Final = 3
"""Others that went on for so many steps did not wait for a rank that had ended."""
CLEARLY_FIRST_NS: Final = 1_000_000_000
"""Clocks of hosts differ; who ended this much earlier ended first."""
LONG_AFTER_NS: Final = 60_000_000_000
ROOTED: Final = frozenset(
    ("broadcast", "scatter", "gather", "reduce", "broadcast_object_list", "gather_object",
     "scatter_object_list", "monitored_barrier", "broadcast_one_to_all")
)  # fmt: skip
"""Collectives in which one rank has a part of its own: it may have passed while others wait."""
_FATAL: Final = frozenset(("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS"))
"""Signals that nobody sends to clean up after another rank's failure, as a rule."""
_OF_A_PEER: Final = (
    "closed by peer", "reset by peer", "read error", "write error", "broken pipe", "timed out",
    "timeout", "watchdog", "remote process exited", "remote error", "communicator was aborted",
    "ncclremoteerror", "ncclsystemerror", "connection refused", "socket closed",
)  # fmt: skip
"""Words of an error that another rank's end causes."""

_ORDER: Final = (
    "the order of collectives in these lines",
    "if that is right, a message was lost: torch's flight recorder (TORCH_FR_BUFFER_SIZE)",
)


@dataclass(frozen=True, slots=True)
class Blame:
    rule: str
    ranks: tuple[int, ...]
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    look_at: tuple[str, ...] = ()


# ── rules, strongest first ─────────────────────────────────────────────────────────────────────


def by_end(scene: Scene) -> Blame | None:
    """A rank that has ended, while others wait for it or went down after it."""
    steps = [seat.evidence.last_step for seat in scene.seats]
    last = max((step for step in steps if step is not None), default=None)
    gone = [seat for seat in scene.gone if not _left_long_ago(seat, last)]
    bad = [seat for seat in gone if seat.evidence.ended is None or not seat.evidence.ended.ok]
    if not bad:
        return _finished_early(scene, gone) if gone else None
    causes = [seat for seat in bad if len(bad) == 1 or not _was_told_to_end(seat)]
    causes = [seat for seat in causes if not _died_of_another(seat)]
    if not causes and scene.seen:
        return None  # they went down with somebody else
    first = _first_to_end(causes)
    if first is None or _is_doubtful(first, scene):
        return _ended_or(scene, bad)
    sure = len(bad) == 1 or _is_fatal(first)
    return _ended(first, "certain" if sure and (scene.waiting or not scene.seen) else "likely")


def _is_doubtful(first: Seat, scene: Scene) -> bool:
    """A watchdog ends ranks that wait, and people end runs that hang."""
    elsewhere = [seat for seat in scene.elsewhere if not seat.moves and seat.waits_for.where]
    if _is_fatal(first):
        return bool(elsewhere) and _after_the_fact(first, elsewhere)
    return bool(elsewhere) or _after_the_fact(first, scene.waiting)


def _first_to_end(causes: Sequence[Seat]) -> Seat | None:
    """Of several the one that no other can have caused, or that was clearly first."""
    fatal = [seat for seat in causes if _is_fatal(seat)]
    for found in (fatal, causes):
        if len(found) == 1:
            return found[0]
    return _clearly_first(fatal or causes)


def _left_long_ago(seat: Seat, last: int | None) -> bool:
    mine = seat.evidence.last_step
    return last is not None and mine is not None and last - mine >= FEW_STEPS


def _after_the_fact(seat: Seat, others: Sequence[Seat]) -> bool:
    """Whether the run had stood still for long when it was killed."""
    ended = seat.evidence.ended
    known = [s.evidence.since_ns for s in others if s.evidence.since_ns is not None]
    return ended is not None and bool(known) and ended.time_ns - max(known) > LONG_AFTER_NS


def _finished_early(scene: Scene, gone: Sequence[Seat]) -> Blame | None:
    if not scene.waiting or scene.elsewhere or len(gone) * 2 > len(scene.seats):
        return None
    said = f"{ranks_in_words(s.rank for s in gone)} ended without an error; the others still wait"
    return Blame("ended", tuple(s.rank for s in gone), "likely", (said,))


def _died_of_another(seat: Seat) -> bool:
    ended = seat.evidence.ended
    return ended is not None and any(words in ended.reason.lower() for words in _OF_A_PEER)


def _was_told_to_end(seat: Seat) -> bool:
    return seat.evidence.ended is not None and seat.evidence.ended.signal == "SIGTERM"


def _is_fatal(seat: Seat) -> bool:
    ended = seat.evidence.ended
    return ended is not None and ended.signal in _FATAL


def _clearly_first(seats: Sequence[Seat]) -> Seat | None:
    timed = [(s.evidence.ended.time_ns, s.rank, s) for s in seats if s.evidence.ended is not None]
    if len(timed) < max(len(seats), 2):
        return None
    (first_ns, _, first), (second_ns, _, _) = sorted(timed)[:2]
    return first if second_ns - first_ns >= CLEARLY_FIRST_NS else None


def _ended(seat: Seat, confidence: Confidence) -> Blame:
    ended = seat.evidence.ended
    said = (ended.reason,) if ended is not None and ended.reason else ()
    return Blame("ended", (seat.rank,), confidence, said)


def _ended_or(scene: Scene, bad: Sequence[Seat]) -> Blame:
    said = f"{ranks_in_words(s.rank for s in bad)} ended badly; which of them first is not clear"
    if scene.elsewhere:
        others = ranks_in_words(seat.rank for seat in scene.elsewhere)
        said = (
            f"{ranks_in_words(s.rank for s in bad)} ended badly, and {others} did not wait for it"
        )
    return Blame("ended", (), "cannot tell", (said,), ("the logs of the ranks that ended",))


def by_stop(scene: Scene) -> Blame | None:
    stopped = [seat for seat in scene.seats if seat.is_stopped]
    if not stopped:
        return None
    said = f"{ranks_in_words(s.rank for s in stopped)}: the kernel says state {stopped[0].state}"
    return Blame("stopped", tuple(seat.rank for seat in stopped), "certain", (said,))


def by_running(scene: Scene) -> Blame | None:
    """Everybody's stack changes, or those in collectives come and go: slow, not stuck."""
    if len(scene.seen) < 2:
        return None
    if any(s.moves for s in scene.waiting) or all(s.moves for s in scene.seen):
        return Blame("running", (), "cannot tell", ("stacks change from one look to the next",))
    return None


def by_elsewhere(scene: Scene) -> Blame | None:
    """Ranks that are not in the collective in which the others are."""
    if not scene.waiting or not scene.elsewhere:
        return None
    odd, ranks = grouped(scene.elsewhere), tuple(seat.rank for seat in scene.elsewhere)
    said: tuple[str, ...] = (
        f"of the ranks that were looked at, only {ranks_in_words(ranks)} did not wait for others",
    )
    said += _skipped(scene, scene.elsewhere)
    surely = any(s.waits_for.kind in ("collective", "peer") for s in scene.waiting)
    outnumbered = len(scene.elsewhere) < len(scene.waiting)
    at_work = bool(scene.unseen) and all(s.moves for s in scene.elsewhere)
    if len(odd) == 1 and (outnumbered or surely) and not at_work:
        return Blame("elsewhere", ranks, "likely", said)
    return Blame("elsewhere", (), "cannot tell", said)


def by_collective(scene: Scene) -> Blame | None:
    """Ranks in another collective than the others."""
    if scene.elsewhere or len(scene.groups) < 2:
        return None
    most, rest = scene.groups[0], [s for group in scene.groups[1:] for s in group.seats]
    said: tuple[str, ...] = (
        "ranks are in different collectives: " + _and(_named(g) for g in scene.groups[:4]),
    )
    said += _skipped(scene, rest)
    clear = len(scene.groups) == 2 and _is_majority(scene, len(rest))
    if clear and _may_judge(most, rest) and _differ(most, rest):
        return Blame("mismatch", tuple(seat.rank for seat in rest), "likely", said, _ORDER)
    return Blame("mismatch", (), "cannot tell", said, _ORDER)


def _may_judge(most: Group, rest: Sequence[Seat]) -> bool:
    """Where one rank has a part of its own, being elsewhere than the others proves nothing."""
    wait = most.first.waits_for
    if wait.kind == "peer" or wait.what in ROOTED:
        return False
    return all(seat.waits_for.kind != "peer" for seat in rest)


def _differ(most: Group, rest: Sequence[Seat]) -> bool:
    """The same collective, called from another line, is no mismatch; in another step it is."""
    first, odd = most.first, rest[0]
    if first.waits_for.what != odd.waits_for.what:
        return True
    steps = {seat.step for seat in most.seats}
    return None not in steps and len(steps) == 1 and odd.step not in steps | {None}


def by_step(scene: Scene) -> Blame | None:
    """All in the same line, but not in the same step."""
    if scene.elsewhere or len(scene.groups) != 1:
        return None
    group = scene.groups[0]
    steps = [seat.step for seat in group.seats]
    if None in steps or len(set(steps)) < 2:
        return None
    usual = Counter(steps).most_common(1)[0][0]
    odd = [seat for seat in group.seats if seat.step != usual]
    said = tuple(
        f"rank {seat.rank} is in step {seat.step}, the others in {usual}" for seat in odd[:4]
    )
    if len({s.step for s in odd}) == 1 and _is_majority(scene, len(odd)) and _may_judge(group, odd):
        return Blame("step", tuple(seat.rank for seat in odd), "likely", said)
    return Blame("step", (), "cannot tell", said)


def by_crowd(scene: Scene) -> Blame | None:
    """Nobody is in a collective that we know; one rank is not where all the others are."""
    if scene.waiting or len(scene.groups) != 2 or len(scene.groups[1].seats) != 1:
        return None
    most, odd = scene.groups[0].first, scene.groups[1].first
    blocked = most.waits_for.kind in ("lock", "unknown", "socket", "pipe") and not most.moves
    if not blocked or not _is_majority(scene, 1):
        return None
    return Blame("crowd", (odd.rank,), "likely", ("all other ranks have the same stack",))


def by_nature(scene: Scene) -> Blame | None:
    """A run of one process: there is nobody else, unless it waits for somebody."""
    if len(scene.seats) != 1 or not scene.seen:
        return None
    if scene.seen[0].waits_for.kind in ("collective", "peer"):
        return None
    return Blame("alone", (scene.seats[0].rank,), "likely")


def by_nothing(scene: Scene) -> Blame:
    said: tuple[str, ...] = ()
    look: tuple[str, ...] = ()
    if scene.unseen:
        said += (f"{ranks_in_words(s.rank for s in scene.unseen)} could not be looked at",)
    if scene.waiting and len(scene.groups) == 1:
        said += ("no rank differs from the others",)
        look = ("torch's flight recorder (TORCH_FR_BUFFER_SIZE)", "the network between the hosts")
    return Blame("nothing", (), "cannot tell", said, look)


RULES: Final[tuple[Callable[[Scene], Blame | None], ...]] = (
    by_stop,
    by_end,
    by_nature,
    by_running,
    by_elsewhere,
    by_collective,
    by_step,
    by_crowd,
    by_nothing,
)


def by_flight(scene: Scene) -> Blame | None:
    """What the flight recorders of the ranks show, whatever their stacks say."""
    decided = [finding for finding in scene.flight if finding.decided and finding.ranks]
    if not decided:
        return None
    ranks = decided[0].ranks
    if any(finding.ranks != ranks for finding in decided) or len(ranks) * 2 > len(scene.seats):
        return None
    return Blame("flight", ranks, "likely", tuple(map(_in_words, decided)))


def _in_words(finding: Finding) -> str:
    who = ranks_in_words(finding.ranks)
    what = f"collective {finding.sequence} of group {finding.group} ({finding.operation})"
    if finding.missing:
        return f"flight recorder: {who} never called {what}"
    calls = finding.calls or {}
    instead = sorted({calls[rank].operation for rank in finding.different if rank in calls})
    return f"flight recorder: {who} called {_and(instead)} as {what}"


# ── what they share ────────────────────────────────────────────────────────────────────────────


def _is_majority(scene: Scene, odd: int) -> bool:
    """Whether the others are clearly more, also counting those that nobody could look at."""
    others = len(scene.seen) - odd
    return len(scene.seen) >= ENOUGH and odd * 2 <= others and not scene.unseen and not scene.gone


def _named(group: Group) -> str:
    wait = group.first.waits_for
    return f"{ranks_in_words(group.ranks)} in {wait.what}{wait.place}"


def _and(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def _skipped(scene: Scene, odd: Sequence[Seat]) -> tuple[str, ...]:
    """Ahead of the others means that a collective was left out; behind, that it is late."""
    others = [seat for seat in scene.seen if seat not in odd]
    found = {_order(seat, other) for seat in odd for other in others[:1]}
    if found == {1}:
        return (f"{ranks_in_words(s.rank for s in odd)} came further than the others: it seems "
                "to have skipped the collective in which they wait",)  # fmt: skip
    if found == {-1}:
        return (f"{ranks_in_words(s.rank for s in odd)} did not come as far as the others",)
    return ()


def _order(one: Seat, other: Seat) -> int:
    """1 if `one` is further on in the program than `other`, -1 if less far, 0 if not known."""
    if one.step is not None and other.step is not None and one.step != other.step:
        return 1 if one.step > other.step else -1
    for mine, theirs in zip(_path(one), _path(other), strict=False):
        if mine[:2] != theirs[:2]:
            return 0
        if mine[2] != theirs[2]:
            return 1 if mine[2] > theirs[2] else -1
    return 0


def _path(seat: Seat) -> list[tuple[str, str, int]]:
    """Outermost first."""
    frames = () if seat.thread is None else seat.thread.frames
    return [(f.name, f.file, f.line) for f in reversed(frames) if not f.native]
