"""Whether a rank that makes no progress is stuck, at work, or whether that cannot be told.

A person who sees the stacks would not call everything a hang: a stack that moves, a compile, a
checkpoint, a child process that gets on.  Each rule looks at one rank; the first that answers
decides.  What the answer is worth after how long is in `views/severity.py`.
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
"""So many looks that show the same are evidence."""
PATIENT: Final = frozenset(
    ("compile", "checkpoint", "evaluation", "transfer", "files", "collection", "file")
)
"""What may take minutes, native calls in it included."""
_FOR_A_CHILD: Final = frozenset(("subprocess", "data", "pipe", "lock", "unknown", "await", "sleep"))
_FOR_A_THREAD: Final = frozenset(("lock", "await", "data", "subprocess"))
_POLLED: Final = frozenset(("lock", "sleep", "subprocess", "await"))
"""Waits in which one may look again and again, and wait all the same."""
_STREAMED: Final = ("a stream", "the event loop")
_DEAD: Final = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Standing:
    bearing: Bearing
    why: str = ""
    """For a person, after the sentence that says where the rank is."""


Rule = Callable[[Seat], Standing | None]
_LENIENT: Final[tuple[Bearing, ...]] = ("busy", "idle", "unsure", "stuck")


def most_lenient(found: Iterable[Standing]) -> Standing | None:
    """As long as one of several has an excuse, the others may be waiting for it."""
    return min(found, key=lambda each: _LENIENT.index(each.bearing), default=None)


def standing(seat: Seat) -> Standing:
    return next(found for rule in RULES if (found := rule(seat)) is not None)


# ── rules, strongest first ─────────────────────────────────────────────────────────────────────


def by_state(seat: Seat) -> Standing | None:
    """What the kernel says needs no stack."""
    if seat.is_gone or seat.is_stopped:
        return Standing("stuck")
    return None if seat.is_seen else Standing("unsure", "nobody could look")


def by_prompt(seat: Seat) -> Standing | None:
    """A debugger, a console, a notebook kernel; the interpreter's own has no Python frame."""
    thread = seat.thread
    bare = thread is not None and thread.is_main and all(frame.native for frame in thread.frames)
    if seat.waits_for.kind == "idle" or (bare and seat.looks >= SEVERAL):
        return Standing("idle", "it waits for a person" if not bare else "it runs no Python code")
    return None


def by_word(seat: Seat) -> Standing | None:
    """It tells that it is there: values or texts came after its last step, or it prints."""
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
    """A compile, a checkpoint, a collection of garbage have their time, moving or not."""
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
    """It waits for a thread of its own, or for what native threads do for it.

    A lock by itself is not that: who would release it may be any thread, or none.
    """
    wait, ran = seat.waits_for, seat.others_ran
    if wait.kind not in _FOR_A_THREAD or (wait.kind == "lock" and wait.what == "a lock"):
        return None
    return Standing("busy", "other threads of it work") if ran and ran.was_busy else None


def by_pulse(seat: Seat) -> Standing | None:
    """The same line at every look, and yet it ran in between: it sends, receives, reads."""
    wait, ran = seat.waits_for, seat.ran
    if ran is None or wait.kind == "running" or _waits_for_ranks(wait):
        return None
    polls = wait.kind in _POLLED and wait.what not in _STREAMED
    if not (ran.polled_at_most if polls else ran.rested):
        return Standing("busy", "it ran between the looks")
    return None


def by_running(seat: Seat) -> Standing | None:
    """On a core at every look, or with the interpreter's lock in its hands, in the same line."""
    wait = seat.waits_for
    if wait.kind != "running":
        return None
    if seat.looks < SEVERAL or _hinted(seat):
        return Standing("unsure")
    blocked = wait.detail == HOLDS_GIL and seat.ran is not None and seat.ran.rested
    # A collection of garbage keeps the lock, too: its native frames tell.
    if blocked or (seat.keeps_gil and seat.native_seen):
        return Standing("stuck")
    if wait.what == "native code" and not seat.keeps_gil:
        return Standing("busy", "it computes")
    return Standing("unsure", "it is on a core, in the same line at every look")


def by_others(seat: Seat) -> Standing | None:
    """In a collective, at the device, in the backward pass: that depends on others."""
    return Standing("unsure") if _waits_for_ranks(seat.waits_for) else None


def by_identity(seat: Seat) -> Standing:
    """Blocked: the same stack at several looks, or in what cannot be mistaken."""
    wait = seat.waits_for
    if seat.looks < SEVERAL and wait.kind not in ("sleep", "lock", "socket", "pipe"):
        return Standing("unsure")
    dead = (child for child in _children(seat) if child.state in _DEAD)
    gone = next(dead, None) if wait.kind in _FOR_A_CHILD else None
    return Standing("stuck", "" if gone is None else f"its child process {gone.pid} is dead")


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
    """In a function that is called for something that takes long."""
    return seat.thread is not None and hint_of(seat.thread) is not None


def _children(seat: Seat) -> list[Child]:
    felt = {child.pid: child for child in pulses.children_of(seat.evidence.rounds)}
    for pid, rounds in seat.evidence.histories.items():
        if pid not in felt:
            state = str(rounds[-1].get("state", "")) if rounds else ""
            felt[pid] = Child(pid, "python", state, None)
    return list(felt.values())


def _gets_on(parent: Seat, child: Child, kind: str) -> bool:
    """A Python process by its stacks; of another it is known only how much it ran.

    Beside a program there may be others that never rest (a tracker's, a monitor): who does not
    wait for a child process is not excused by one, and who may wait for one only by one at work.
    """
    if child.state in _DEAD or child.state == "T":
        return False
    looked = seat(RankEvidence(parent.rank, parent.evidence.histories.get(child.pid, ())))
    if looked.thread is not None:
        at_work = looked.ran is not None and looked.ran.was_busy
        idle = is_idle_worker(looked.thread)
        return not idle and (at_work or standing(looked).bearing in ("busy", "idle"))
    if child.ran is None or kind not in ("subprocess", "pipe", "unknown"):
        return False
    return not child.ran.rested if kind == "subprocess" else child.ran.was_busy
