"""Whether a rank that makes no progress is stuck, at work, or whether that cannot be told.

A person who sees the stacks would not call these a hang: a stack that moves, a compile, a
checkpoint, a child process that gets on.  Each rule looks at one rank; the first that answers
decides.  How grave that is, after how long, is in `views/severity.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from runwatch.views.diagnosis import pulses
from runwatch.views.diagnosis.evidence import RankEvidence, Seat, is_idle_worker, seat
from runwatch.views.diagnosis.frames import HOLDS_GIL, Wait, hint_of
from runwatch.views.diagnosis.pulses import Child
from runwatch.views.severity import Bearing

SEVERAL: Final = 3
"""A stack that is the same at so many looks is evidence."""
PATIENT: Final = frozenset(
    ("compile", "checkpoint", "evaluation", "transfer", "files", "collection", "file")
)
"""What may take minutes without a change of the stack."""
_FOR_A_CHILD: Final = frozenset(("subprocess", "data", "pipe", "lock", "unknown", "await", "sleep"))
_FOR_A_THREAD: Final = frozenset(("lock", "await", "data", "subprocess"))
_POLLED: Final = frozenset(("lock", "sleep", "subprocess", "await"))
"""Waits that wake up again and again to look, and are waits all the same."""
_STREAMED: Final = ("a stream", "the event loop")
_DEAD: Final = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Standing:
    bearing: Bearing
    why: str = ""
    """For a person, after the sentence that says where the rank is."""


Rule = Callable[[Seat], Standing | None]
_LENIENT: Final[tuple[Bearing, ...]] = ("busy", "idle", "unsure", "stuck")


def most_lenient(standings: Iterable[Standing]) -> Standing | None:
    """As long as one of several ranks has an excuse, the others may be waiting for it."""
    return min(standings, key=lambda each: _LENIENT.index(each.bearing), default=None)


def standing(seat: Seat) -> Standing:
    return next(answer for rule in RULES if (answer := rule(seat)) is not None)


# ── rules, strongest first ─────────────────────────────────────────────────────────────────────


def by_state(seat: Seat) -> Standing | None:
    """Ended or stopped: the kernel says so, and no stack is needed."""
    if seat.is_gone or seat.is_stopped:
        return Standing("stuck")
    return None if seat.is_seen else Standing("unsure", "nobody could look")


def by_prompt(seat: Seat) -> Standing | None:
    """A debugger, a console, a notebook kernel.  At the interpreter's own prompt there is no
    Python frame."""
    thread = seat.thread
    no_python = thread is not None and thread.is_main and all(f.native for f in thread.frames)
    if seat.waits_for.kind == "idle" or (no_python and seat.looks >= SEVERAL):
        return Standing("idle", "it runs no Python code" if no_python else "it waits for a person")
    return None


def by_word(seat: Seat) -> Standing | None:
    """It recorded values or texts after its last step, or it prints."""
    if seat.evidence.speaks:
        return Standing("busy", "it still records values")
    if seat.ran is not None and seat.ran.wrote:
        return Standing("busy", "it still writes")
    return None


def by_children(seat: Seat) -> Standing | None:
    """It waits for a process that it started, and that one gets on."""
    kind = seat.waits_for.kind
    if kind not in _FOR_A_CHILD:
        return None
    for child in _children(seat):
        if _gets_on(seat, child, kind):
            return Standing("busy", f"its child process {child.pid} ({child.name}) gets on")
    return None


def by_kind(seat: Seat) -> Standing | None:
    """A compile, a checkpoint or a garbage collection may take long, whether or not it moves."""
    wait = seat.waits_for
    if wait.kind in PATIENT or (wait.kind != "sleep" and seat.state == "D"):
        return Standing("busy", f"{wait.what or 'input and output'} may take long")
    return None


def by_motion(seat: Seat) -> Standing | None:
    running = seat.waits_for.kind == "running" and not seat.keeps_gil
    if seat.moves or (running and seat.moved_before):
        return Standing("busy", "its stack moves")
    return None


def by_circles(seat: Seat) -> Standing | None:
    if seat.in_circles and seat.looks >= SEVERAL:
        return Standing("stuck", "nothing in this loop can end it")
    return None


def by_threads(seat: Seat) -> Standing | None:
    """It waits for another thread of its process, and the other threads are at work.

    A plain lock does not count: it is not known which thread, if any, will release it.
    """
    wait, ran = seat.waits_for, seat.others_ran
    if wait.kind not in _FOR_A_THREAD or (wait.kind == "lock" and wait.what == "a lock"):
        return None
    return Standing("busy", "other threads of it work") if ran and ran.was_busy else None


def by_pulse(seat: Seat) -> Standing | None:
    """It is in the same line at every look, but ran in between: it sends, receives or reads."""
    wait, ran = seat.waits_for, seat.ran
    if ran is None or wait.kind == "running" or _waits_for_ranks(wait):
        return None
    polls = wait.kind in _POLLED and wait.what not in _STREAMED
    if not (ran.polled_at_most if polls else ran.rested):
        return Standing("busy", "it ran between the looks")
    return None


def by_running(seat: Seat) -> Standing | None:
    """It runs, or holds the interpreter's lock, and is in the same line at every look."""
    wait = seat.waits_for
    if wait.kind != "running":
        return None
    if seat.looks < SEVERAL or _hinted(seat):
        return Standing("unsure")
    blocked = wait.detail == HOLDS_GIL and seat.ran is not None and seat.ran.rested
    # A garbage collection holds the lock, too; where native frames were read, they would show it.
    if blocked or (seat.keeps_gil and seat.native_seen):
        return Standing("stuck")
    if wait.what == "native code" and not seat.keeps_gil:
        return Standing("busy", "it computes")
    return Standing("unsure", "it is on a core, in the same line at every look")


def by_others(seat: Seat) -> Standing | None:
    """It waits for other ranks: whether it is stuck depends on them."""
    return Standing("unsure") if _waits_for_ranks(seat.waits_for) else None


def by_identity(seat: Seat) -> Standing:
    """Blocked: the same stack at several looks, or a wait that one look shows clearly."""
    wait = seat.waits_for
    if seat.looks < SEVERAL and wait.kind not in ("sleep", "lock", "socket", "pipe"):
        return Standing("unsure")
    dead_children = (child for child in _children(seat) if child.state in _DEAD)
    dead = next(dead_children, None) if wait.kind in _FOR_A_CHILD else None
    return Standing("stuck", "" if dead is None else f"its child process {dead.pid} is dead")


RULES: Final[tuple[Rule, ...]] = (
    by_state,
    by_prompt,
    by_word,
    by_children,
    by_kind,
    by_motion,
    by_circles,
    by_threads,
    by_pulse,
    by_running,
    by_others,
    by_identity,
)


# ── what they share ────────────────────────────────────────────────────────────────────────────


def _waits_for_ranks(wait: Wait) -> bool:
    return wait.kind in ("collective", "peer", "device", "backward")


def _hinted(seat: Seat) -> bool:
    """The name of a function on its stack says that this may take long."""
    return seat.thread is not None and hint_of(seat.thread) is not None


def _children(seat: Seat) -> list[Child]:
    """Its child processes: those in the pulses, and those whose stacks were read."""
    by_pid = {child.pid: child for child in pulses.children_of(seat.evidence.rounds)}
    for pid, rounds in seat.evidence.histories.items():
        if pid not in by_pid:
            state = rounds[-1].state if rounds else ""
            by_pid[pid] = Child(pid, "python", state, None)
    return list(by_pid.values())


def _gets_on(parent: Seat, child: Child, kind: str) -> bool:
    """Whether a child gets on: a Python process by its stacks, any other by how much it ran.

    A program may have child processes that never rest, like a monitor.  So such a child counts
    only where the parent waits for a process, and where it only may wait for one, the child must
    be at work.
    """
    if child.state in _DEAD or child.state == "T":
        return False
    as_rank = seat(RankEvidence(parent.rank, parent.evidence.histories.get(child.pid, ())))
    if as_rank.thread is not None:
        at_work = as_rank.ran is not None and as_rank.ran.was_busy
        idle = is_idle_worker(as_rank.thread)
        return not idle and (at_work or standing(as_rank).bearing in ("busy", "idle"))
    if child.ran is None or kind not in ("subprocess", "pipe", "unknown"):
        return False
    return not child.ran.rested if kind == "subprocess" else child.ran.was_busy
