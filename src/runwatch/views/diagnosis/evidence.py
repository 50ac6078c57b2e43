"""What is known of each rank when a run stands still, and what its stacks say.

`RankEvidence` is what a head gathers; `Seat` is how one rank looks in the light of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from runwatch.record.stacks import Frame, Stacks
from runwatch.views.diagnosis.frames import (
    HOLDS_GIL,
    Signature,
    Thread,
    Wait,
    differ,
    main_thread,
    path,
    signature,
    threads_of,
    wait_of,
)
from runwatch.views.diagnosis.progress import Ended, Progress
from runwatch.views.diagnosis.pulses import Ran, of_others, of_thread

FOR_OTHERS: Final = frozenset(("collective", "peer", "device", "backward"))
"""Waits that other ranks may end."""
_TELLING: Final = frozenset(("collective", "peer", "data", "checkpoint", "compile", "device"))
"""What another thread does while the main thread waits for it."""
_WAITS_FOR_A_THREAD: Final = frozenset(("lock", "unknown", "backward", "device"))
"""Waits of the main thread behind which another thread may be."""
_STOPPED: Final = "T"
"""Not `t`: a process is in that state while somebody reads its stacks from outside."""
_GONE: Final = frozenset("ZX")
LOOKS: Final = 4
"""Where a rank is comes from so many of its newest looks; earlier ones only say if it moved."""


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What is known of one rank.  A *look* (or round) is one reading of its stacks."""

    rank: int
    rounds: Sequence[Stacks] = ()
    """Of its process, oldest first; one or two are enough."""
    state: str = ""
    """The letter of /proc/PID/stat; if empty, the newest round's."""
    last_step: int | None = None
    """The last step that it completed."""
    open_spans: Mapping[str, int] = field(default_factory=dict)
    """The spans it is in, `step` among them, and since when."""
    since_ns: int | None = None
    """When it last made progress."""
    ended: Ended | None = None
    problems: tuple[str, ...] = ()
    """Why it could not be looked at."""
    children: Sequence[Stacks] = ()
    """Stacks of the processes it started: a data loader's workers."""
    host: str = ""
    histories: Mapping[int, Sequence[Stacks]] = field(default_factory=dict)
    """By pid: all rounds of the processes that it started, oldest first."""
    speaks: bool = False
    """It recorded values or texts after its last progress, and not long ago."""


def gather(
    looks: Iterable[Stacks],
    progress: Progress | None = None,
    now_ns: int | None = None,
) -> dict[int, RankEvidence]:
    """What is known of each rank, from the `stacks` events of one incident and the progress so far.

    Stacks with `child_of` are of a process that a rank started.
    """
    rounds: dict[int, dict[int, Stacks]] = defaultdict(dict)
    children: dict[int, dict[int, dict[int, Stacks]]] = defaultdict(dict)
    hosts: dict[int, str] = {}
    for stacks in looks:
        rank, number = stacks.rank, stacks.round or 0
        if rank is None:
            continue
        if stacks.child_of:
            children[rank].setdefault(stacks.pid, {})[number] = stacks
        else:
            rounds[rank][number] = stacks
            hosts[rank] = stacks.host or ""
    everyone = set(rounds) | (set(progress.ranks()) if progress is not None else set())
    return {
        rank: _with_progress(
            RankEvidence(
                rank,
                _in_order(rounds[rank]),
                children=tuple(_in_order(looks)[-1] for looks in children[rank].values()),
                host=hosts.get(rank, ""),
                histories={pid: _in_order(looks) for pid, looks in children[rank].items()},
            ),
            progress,
            now_ns,
        )
        for rank in sorted(everyone)
    }


def _in_order(rounds: Mapping[int, Stacks]) -> list[Stacks]:
    return [rounds[number] for number in sorted(rounds)]


def _with_progress(
    plain: RankEvidence, progress: Progress | None, now_ns: int | None
) -> RankEvidence:
    rank = plain.rank
    if progress is None or rank not in progress.ranks():
        return plain
    return replace(
        plain,
        last_step=progress.last_step(rank),
        open_spans=progress.open_spans(rank),
        since_ns=progress.since_ns(rank),
        ended=progress.ended(rank),
        speaks=now_ns is not None and progress.speaks(rank, now_ns),
    )


# ── one rank, looked at ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank, as its evidence shows it."""

    evidence: RankEvidence
    thread: Thread | None
    """The thread that tells what the rank does; None if there are no stacks."""
    wait: Wait | None
    key: Signature
    """Equal for ranks that are at the same place."""
    moves: bool
    """Its stack changed between two looks."""
    loops: bool = False
    """Its stack changed, but the user's functions on it are the same."""
    threads: tuple[Thread, ...] = ()
    state: str = ""
    looks: int = 0
    """How many of the newest looks show its thread."""
    ran: Ran | None = None
    """How much `thread` ran between the looks; None if that is not known."""
    others_ran: Ran | None = None
    """How much all other threads ran, native ones too, without those of Runwatch."""
    in_circles: bool = False
    """It is in a loop that nothing inside the loop can end."""
    moved_before: bool = False
    """Its stack changed between any two looks at this stall, old ones too."""
    keeps_gil: bool | None = None
    """True: no other thread got the interpreter's lock (GIL) at any look.  None: not tried."""
    native_seen: bool = False
    """At least one look has native frames."""

    @property
    def waits_for(self) -> Wait:
        return self.wait or Wait("unknown", "")

    @property
    def rank(self) -> int:
        return self.evidence.rank

    @property
    def is_stopped(self) -> bool:
        return self.evidence.ended is None and self.state == _STOPPED

    @property
    def is_gone(self) -> bool:
        return self.evidence.ended is not None or self.state in _GONE

    @property
    def is_seen(self) -> bool:
        return self.thread is not None and not self.is_gone and not self.is_stopped

    @property
    def waits_for_others(self) -> bool:
        """In a collective, or where a collective may be what it waits for."""
        return self.is_seen and self.wait is not None and self.wait.kind in FOR_OTHERS

    @property
    def step(self) -> int | None:
        """The step it is in, or comes to next."""
        return None if self.evidence.last_step is None else self.evidence.last_step + 1


def seat(evidence: RankEvidence) -> Seat:
    all_looks = [threads for stacks in evidence.rounds if (threads := threads_of(stacks))]
    newest_looks = all_looks[-LOOKS:]
    states = (stacks.state for stacks in reversed(evidence.rounds) if stacks.state)
    state = evidence.state or next(states, "")
    thread = _that_matters(newest_looks[-1]) if newest_looks else None
    if thread is None:
        return Seat(evidence, None, None, ("unseen", why_unseen(evidence)), False, state=state)
    earlier = _same_thread(newest_looks[:-1], thread)
    changed = [before for before in earlier if differ(before, thread)]
    moves = any(not _stays(before, thread) for before in changed)
    wait = _as_seen([*earlier, thread])
    for before in changed:
        wait = _while_moving(before, wait)
    rounds = evidence.rounds[-LOOKS:]
    keeps_gil = _keeps_gil(rounds)
    if keeps_gil is not None and wait.kind == "running":
        what = "native code" if keeps_gil or wait.what == "native code" else "Python code"
        wait = Wait("running", what, wait.where, HOLDS_GIL if keeps_gil else "")
    return Seat(
        evidence,
        thread,
        wait,
        signature(thread, wait),
        moves,
        loops=moves and all(path(before) == path(thread) for before in changed),
        threads=tuple(newest_looks[-1]),
        state=state,
        looks=len(earlier) + 1,
        ran=of_thread(rounds, thread.native_id) if thread.native_id else None,
        others_ran=of_others(rounds, _ours(rounds) | {thread.native_id}),
        in_circles=not changed and sum(look.spins for look in (*earlier, thread)) > 1,
        moved_before=_moved(_same_thread(all_looks, thread)),
        keeps_gil=keeps_gil,
        native_seen=any(look.whole for look in (*earlier, thread)),
    )


def _same_thread(looks: Sequence[Sequence[Thread]], thread: Thread) -> list[Thread]:
    """The thread as it was at each of these looks, where it was there."""
    return [same for threads in looks if (same := _counterpart(threads, thread)) is not None]


def _moved(looks: Sequence[Thread]) -> bool:
    return any(differ(one, other) for one, other in zip(looks, looks[1:], strict=False))


def _keeps_gil(rounds: Sequence[Stacks]) -> bool | None:
    """A process that did not answer once may have been slow; one that never answers is not."""
    answers = [stacks.answers for stacks in rounds if stacks.answers is not None]
    if any(answers):
        return False
    return True if len(answers) > 1 else None


def _as_seen(looks: Sequence[Thread]) -> Wait:
    """From the newest look.  If the stack did not change, an earlier look may have native frames,
    which tell more."""
    newest = looks[-1]
    if not newest.whole:
        for before in reversed(looks[:-1]):
            if differ(before, newest):
                break
            if before.whole:
                return wait_of(before)
    return wait_of(newest)


def _ours(rounds: Sequence[Stacks]) -> set[int]:
    """The thread ids of Runwatch's own threads in that process."""
    threads = (thread for stacks in rounds for thread in stacks.threads)
    return {thread.native_id for thread in threads if thread.name.startswith("runwatch")}


def why_unseen(evidence: RankEvidence) -> str:
    of_rounds = (problem for stacks in evidence.rounds for problem in stacks.problems)
    return next(iter((*evidence.problems, *of_rounds)), "no stacks came back")


def _that_matters(threads: Sequence[Thread]) -> Thread | None:
    """The main thread, unless it waits for another that tells more."""
    main = main_thread(threads)
    if main is None:
        return None
    wait = wait_of(main)
    if wait.kind not in _WAITS_FOR_A_THREAD:
        return main
    telling = [t for t in threads if t is not main and _tells(t, wait)]
    return telling[0] if len(telling) == 1 else main


def _tells(thread: Thread, waited: Wait) -> bool:
    kind = wait_of(thread).kind
    if waited.kind in ("backward", "device"):
        return kind == "collective"
    # A loader's own threads always wait for data: nobody waits for them in a lock.
    return kind in _TELLING - {"data"} and any(not frame.native for frame in thread.frames)


def _counterpart(threads: Sequence[Thread], of: Thread) -> Thread | None:
    if of.is_main:
        return main_thread(threads)
    return next((thread for thread in threads if thread.name == of.name), None)


def _while_moving(before: Thread, wait: Wait) -> Wait:
    """A thread whose stack changed runs, even if the newest look caught it in a lock."""
    if wait.kind in ("unknown", "lock") and wait_of(before).kind != wait.kind:
        return Wait("running", "Python code", wait.where)
    if wait.kind == "unknown":
        return Wait("running", "Python code", wait.where)
    return wait


def _stays(before: Thread, now: Thread) -> bool:
    """Whether two different stacks show the same wait: a loader that polls, say."""
    first, second = wait_of(before), wait_of(now)
    if second.kind in ("running", "unknown", "compile", "checkpoint") or first.kind != second.kind:
        return False
    return signature(before, first) == signature(now, second)


def child_waits(seat: Seat) -> list[tuple[int, Wait]]:
    """By pid, what the processes that a rank started do; those that wait for work are left out."""
    waits = []
    for stacks in seat.evidence.children:
        thread = main_thread(threads_of(stacks))
        if thread is None:
            continue
        wait = wait_of(thread)
        if not is_idle_worker(thread):
            waits.append((stacks.pid, wait))
    return waits


def is_idle_worker(thread: Thread) -> bool:
    """A worker of a data loader that waits to be told which samples to fetch."""
    for frame in thread.frames:
        if frame.native:
            continue
        if frame.name == "_worker_loop":
            return True
        if "/multiprocessing/" not in frame.file and "/selectors.py" not in frame.file:
            return False
    return False


def locked_threads(seat: Seat) -> list[tuple[Thread, Frame]]:
    """Threads that wait for a lock in the user's code, and where."""
    locked = []
    for thread in seat.threads:
        wait = wait_of(thread)
        if wait.kind == "lock" and wait.where is not None and _acquires(thread, wait):
            locked.append((thread, wait.where))
    return locked


def _acquires(thread: Thread, wait: Wait) -> bool:
    """A lock itself, not the condition of a queue or an idle pool."""
    return wait.what == "a lock" or any(
        not frame.native and frame.name in ("acquire", "__enter__") for frame in thread.frames[:6]
    )
