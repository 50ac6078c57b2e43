"""What a run waits for before its processes can work: machines, and the start of its pods.

Between two attempts, and before an attempt's first step, nothing can go on while a pod that the run
needs has no node (`scheduling_wait`), or while all have nodes and one still gets its images,
volumes and init containers (`pod_startup`).  Time in a scheduler's queue is `scheduling_wait`, too.

An attempt needs

* the pods of its processes, if the process was there before the attempt's first step: a pod that
  comes while the run trains on holds nobody up;
* while ranks are missing, the pods without a process that were made since the attempt before went
  down; and those of them that were given up again before this one began.

The times are the API server's, in whole seconds.  A process shows that its pod has started,
whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from runwatch.views.goodput.account import Life, Range, Wait, normalised
from runwatch.views.goodput.classes import Spent
from runwatch.views.pods import NO_PODS, Pod, Pods
from runwatch.views.runs import ProcessState, of_last_attempt, queue_of

WHOLE_SECOND_NS: Final = 1_000_000_000
# A program may import for minutes before its run begins; a pod that runs longer is of no process.
_BEGINS_NS: Final = 600 * WHOLE_SECOND_NS


@dataclass(frozen=True, slots=True)
class Coming:
    """An attempt that the run waits for, or waited for."""

    attempt: int
    lives: Sequence[Life]
    made_since_ns: int
    """When the attempt before went down."""
    since_ns: int
    until_ns: int
    """The time in which waits count."""
    before_ns: int | None = None
    """When the attempt before began."""
    begun_ns: int | None = None
    """When its first process began."""
    step_ns: int | None = None
    """When its first step began."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What schedulers and a cluster told of how the run got its machines."""

    pods: Pods = NO_PODS
    members: Mapping[int, Sequence[ProcessState]] = field(default_factory=dict)
    """The processes of each attempt, launchers among them."""
    seats: Mapping[str, str] = field(default_factory=dict)
    """The uid of each process's pod, by the process's journal."""
    empty: Sequence[Pod] = ()
    """The pods in which no process is known."""

    def waits(self, coming: Coming) -> list[Wait]:
        """When nothing of the attempt could go on, in order and without overlap."""
        needed = list(self._needed(coming)) if self.pods else []
        scheduling = [*_clipped((pod.waiting(until) for pod, until in needed), coming)]
        queue = self._queue(coming, [pod for pod, _ in needed])
        nodeless = normalised([*scheduling, *_clipped([queue], coming)])
        starting = normalised(_clipped((pod.starting(until) for pod, until in needed), coming))
        pods = [pod for pod, _ in needed]
        waits = [_wait(piece, Spent.SCHEDULING_WAIT, pods) for piece in nodeless]
        waits += [_wait(piece, Spent.POD_STARTUP, pods) for piece in _beside(starting, nodeless)]
        return sorted(waits, key=lambda wait: wait.start_ns)

    def wanted_until(self, since_ns: int, now_ns: int) -> int:
        """Until when pods were there to go on with the run, which went down then; 0: never."""
        pods = (pod for pod in self.empty if pod.is_coming(since_ns))
        return max((_wanted_until(pod, now_ns) for pod in pods), default=0)

    def _needed(self, coming: Coming) -> Iterator[tuple[Pod, int]]:
        """Each with the time by which it had surely started."""
        begun: dict[str, int] = {}
        for life in coming.lives:
            uid = self.seats.get(life.key.partition("#")[0], "")
            begun[uid] = min(life.start_ns, begun.get(uid, life.start_ns))
        for uid, begun_ns in begun.items():
            pod = self.pods.get(uid)
            if pod is not None and (coming.step_ns is None or begun_ns <= coming.step_ns):
                yield pod, begun_ns
        is_awaited = self._is_awaited(coming)
        for pod in self.empty:
            if pod.is_coming(coming.made_since_ns) and (is_awaited or _was_given_up(pod, coming)):
                yield pod, coming.until_ns

    def _is_awaited(self, coming: Coming) -> bool:
        """Whether ranks of it are missing, so that any new pod may be theirs."""
        if coming.begun_ns is None:
            return True
        most = max((each.world_size for each in self.members.get(coming.attempt, ())), default=0)
        return coming.step_ns is None and len({life.rank for life in coming.lives}) < most

    def _queue(self, coming: Coming, needed: Iterable[Pod]) -> Range | None:
        """When it was in a queue, until it had pods: those say more."""
        if coming.begun_ns is None or coming.before_ns is None:
            return None
        members = self.members.get(coming.attempt, ())
        queued = queue_of(members, coming.before_ns, coming.begun_ns)
        if queued is None:
            return None
        made = [pod.created_ns for pod in needed if pod.created_ns is not None]
        return queued[0], min([queued[1], *made])


NO_MACHINES: Final = Machines()


def machines_of(states: Iterable[ProcessState], pods: Pods) -> Machines:
    """`states` are those of one run's processes.  If none says in which pod it is, pods say
    nothing of it."""
    members: dict[int, list[ProcessState]] = {}
    seats: dict[str, str] = {}
    for state in states:
        members.setdefault(state.attempt, []).append(state)
        if state.pod_uid:
            seats[state.journal] = state.pod_uid
    known = set(seats.values())
    empty = [pod for pod in pods if pod.uid not in known] if known else []
    return Machines(pods if known else NO_PODS, members, seats, empty)


def down_since(states: Sequence[ProcessState]) -> int | None:
    """When the run went down, if it may go on; None while it runs, and when its work is done."""
    last = of_last_attempt(states)
    ends = [state.ended_ns for state in last if state.ended_ns is not None]
    if len(ends) < len(last) or any(state.done for state in last):
        return None
    return min(ends, default=None)


def _was_given_up(pod: Pod, coming: Coming) -> bool:
    gone_ns = pod.gone_ns
    return gone_ns is not None and (coming.begun_ns is None or gone_ns <= coming.begun_ns)


def _wanted_until(pod: Pod, now_ns: int) -> int:
    started_ns = pod.started_ns
    ends = [] if started_ns is None else [started_ns + _BEGINS_NS]
    ends += [] if pod.gone_ns is None else [pod.gone_ns]
    return min([now_ns, *ends])


# ── ranges ─────────────────────────────────────────────────────────────────────────────────────


def _clipped(ranges: Iterable[Range | None], coming: Coming) -> Iterator[Range]:
    for each in ranges:
        if each is not None:
            start_ns, end_ns = max(each[0], coming.since_ns), min(each[1], coming.until_ns)
            if start_ns < end_ns:
                yield start_ns, end_ns


def _beside(ranges: Iterable[Range], taken: Sequence[Range]) -> Iterator[Range]:
    """What of these is in none that are taken; both are in order."""
    for start_ns, end_ns in ranges:
        for first_ns, last_ns in taken:
            if first_ns >= end_ns or last_ns <= start_ns:
                continue
            if first_ns > start_ns:
                yield start_ns, first_ns
            start_ns = last_ns
        if start_ns < end_ns:
            yield start_ns, end_ns


# ── in words ───────────────────────────────────────────────────────────────────────────────────


def _wait(piece: Range, spent: Spent, pods: Sequence[Pod]) -> Wait:
    start_ns, end_ns = piece
    during = (
        (pod, pod.waiting(end_ns) if spent == Spent.SCHEDULING_WAIT else pod.starting(end_ns))
        for pod in pods
    )
    mine = [pod for pod, each in during if each is not None and each[1] > start_ns]
    if not mine:
        return Wait(start_ns, end_ns, spent)
    names = sorted(pod.pod for pod in mine)
    who = f"pod {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    words = ("unschedulable",) if spent == Spent.SCHEDULING_WAIT else ("pull_failed",)
    said = [pod.words[word].text for pod in mine for word in words if word in pod.words]
    return Wait(start_ns, end_ns, spent, who, max(said, key=said.count, default=""))
