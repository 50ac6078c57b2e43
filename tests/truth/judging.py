"""What a job's time truly went into, from what happened in it.

The run goes at the pace of its last rank: between two steps that are done, an instant is what the
rank was at whose device did its part last.  A device that works on a step is productive wherever
its host is; where it has nothing to do, its host says what it is kept from it by.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.truth.cluster import Said
from tests.truth.machine import (
    BETWEEN,
    EPOCH_NS,
    HUNG,
    IN_STEP,
    PREPARING,
    Epoch,
    Execution,
    Job,
    Launch,
    Process,
    Record,
)

PRODUCTIVE, WASTED, EXCLUDED = "productive", "wasted_progress", "excluded"
RECOVERY, DEGRADED = "infrastructure_recovery", "degraded_capacity"
IDLE = "unattributed"
_OF_PART = {"compute": PRODUCTIVE, "slow": "slow_steps", "hang": "stall"}
_OF_STATE = {
    PREPARING: "training_preparation",
    IN_STEP: PRODUCTIVE,
    BETWEEN: IDLE,
    HUNG: "stall",
}
Stretch = tuple[int, int, str]


@dataclass(frozen=True)
class Truth:
    spent_ns: dict[str, int]
    wall_ns: int
    stretches: tuple[tuple[int, int, str], ...]
    """In true time; the part of a stretch that was `degraded_capacity` is not told apart."""

    @property
    def goodput(self) -> float:
        counted = self.wall_ns - self.spent_ns.get(EXCLUDED, 0)
        return self.spent_ns.get(PRODUCTIVE, 0) / counted


@dataclass(frozen=True)
class Told:
    """One process, as the store knows it."""

    journal: str
    rank: int
    world_size: int
    key: str
    start_ns: int
    records: tuple[Record, ...]
    exit_ns: int
    exit: dict[str, object] | None
    """What its agent saw; None: nobody did."""
    ahead_ns: int
    """How far its clock was ahead of the true time when it started."""


@dataclass(frozen=True)
class History:
    told: tuple[Told, ...]
    truth: Truth
    awaited: int | None = None
    """The rank that the others waited for, where the account should say which."""
    said: tuple[Said, ...] = ()
    """By a cluster, of its pods."""


def history(job: Job, *, awaited: int | None = None) -> History:
    job.world.run()
    told = tuple(
        Told(
            process.journal,
            process.rank,
            process.launch.ranks,
            process.key,
            process.clock.reads(process.start_ns),
            tuple(process.records),
            process.exit_ns,
            None if process.unseen else process.exit,
            process.clock.ahead_ns(process.start_ns),
        )
        for process in job.processes
    )
    said = () if job.cluster is None else tuple(job.cluster.said)
    return History(told, judged(job), awaited, said)


def judged(job: Job) -> Truth:
    spent: dict[str, int] = defaultdict(int)
    stretches: list[Stretch] = []
    most = 0
    for number, launch in enumerate(job.launches):
        if number:
            stretches.append((stretches[-1][1], launch.start_ns, _gap(launch)))
        most = 0 if launch.new_go else most
        for start, end, what, members in _of_launch(launch):
            most = max(most, members)
            stretches.append((start, end, what))
            if what == PRODUCTIVE and 0 < members < most:
                lacking = (end - start) * (most - members) // most
                spent[DEGRADED] += lacking
                spent[PRODUCTIVE] -= lacking
    last = max(process.end_ns or 0 for process in job.processes)
    if stretches[-1][1] < last:
        stretches.append((stretches[-1][1], last, RECOVERY))
    if job.cluster is not None:
        stretches = list(_held_up(stretches, job.cluster.held_up))
    for start, end, what in stretches:
        spent[what] += end - start
    first = job.launches[0].start_ns
    assert sum(spent.values()) == last - first, "the truth leaves no gap"
    assert all(a[1] == b[0] for a, b in zip(stretches, stretches[1:], strict=False))
    return Truth(
        {name: took for name, took in spent.items() if took}, last - first, tuple(stretches)
    )


def _gap(launch: Launch) -> str:
    return EXCLUDED if launch.new_go else RECOVERY


def _held_up(stretches: list[Stretch], held: list[Stretch]) -> Iterator[Stretch]:
    """While something that the job needs is not there, nothing else matters."""
    for start, end, what in stretches:
        for first, last, why in held:
            if first < end and last > start:
                if first > start:
                    yield start, first, what
                yield max(start, first), min(end, last), why
                start = min(end, last)
        if start < end:
            yield start, end, what


# ── one launch ─────────────────────────────────────────────────────────────────────────────────


def _of_launch(launch: Launch) -> Iterator[tuple[int, int, str, int]]:
    """With how many members each stretch was worked in; until the death that ended it."""
    over = launch.end_ns if launch.died_ns is None else launch.died_ns
    cursor = launch.start_ns
    before: Epoch | None = None
    for epoch in launch.epochs:
        members = len(epoch.members)
        if before is not None and epoch.start_ns > cursor:
            stayed = [member for member in before.members if member in epoch.members]
            yield from _with(_window(cursor, epoch.start_ns, stayed[0], None), members)
            cursor = epoch.start_ns
        for execution in epoch.executions:
            if execution.end_ns is None:
                break
            last = max(execution.arrived, key=lambda p: (execution.arrived[p], p.rank))
            yield from _with(_window(cursor, execution.end_ns, last, execution), members)
            cursor = execution.end_ns
        end = over if epoch.end_ns is None else min(over, epoch.end_ns)
        if end > cursor:
            undone = next((e for e in epoch.executions if e.end_ns is None), None)
            yield from _with(_window(cursor, end, _held_up_by(epoch, undone), undone), members)
            cursor = end
        before = epoch


def _with(stretches: Iterator[Stretch], members: int) -> Iterator[tuple[int, int, str, int]]:
    for start, end, what in stretches:
        yield start, end, what, members


def _held_up_by(epoch: Epoch, undone: Execution | None) -> Process:
    """Whom all waited for at the end: who had not done its part, and of those who went first; or,
    with nothing left to do, who went last."""
    if undone is None:
        return max(epoch.members, key=lambda p: (p.end_ns or 0, -p.rank))
    missing = [p for p in epoch.members if p not in undone.arrived]
    return min(missing or epoch.members, key=lambda p: (p.end_ns or 0, p.rank))


def _window(start: int, end: int, last: Process, execution: Execution | None) -> Iterator[Stretch]:
    """What a stretch between two steps that were done went into."""
    kept = execution is None or (execution.end_ns is not None and not execution.lost)
    parts = [] if execution is None else execution.parts.get(last, [])
    cursor = start
    for begin, stop, part in parts:
        yield from _idle(cursor, min(max(begin, cursor), end), last, execution, kept)
        cursor = min(max(cursor, begin), end)
        if min(stop, end) > cursor:
            yield cursor, min(stop, end), _kept(_OF_PART[part], kept)
            cursor = min(stop, end)
    yield from _idle(cursor, end, last, execution, kept)


def _idle(
    start: int, end: int, last: Process, execution: Execution | None, kept: bool
) -> Iterator[Stretch]:
    """The same while the last rank's device has nothing to do."""
    for a, b, state in _states(start, end, last):
        if state == IN_STEP and last.job.on_gpu:
            state = BETWEEN
        what = _kept(_OF_STATE.get(state, state), kept)
        if state == BETWEEN and execution is not None:
            yield from _others(a, b, what, last, execution, kept)
        else:
            yield a, b, what


def _states(start: int, end: int, process: Process) -> Iterator[Stretch]:
    if start >= end:
        return
    if start < process.start_ns:
        edge = min(process.start_ns, end)
        yield start, edge, PREPARING
        start = edge
    gone = process.end_ns if process.end_ns is not None else end
    place = max(bisect_right(process.host, start, key=lambda change: change[0]) - 1, 0)
    while start < min(end, gone):
        following = process.host[place + 1][0] if place + 1 < len(process.host) else gone
        edge = min(following, end, gone)
        if edge > start:
            yield start, edge, process.host[place][1]
            start = edge
        place += 1
    if start < end:
        yield start, end, IN_STEP  # a member that is gone, and nobody has noticed


def _others(
    start: int, end: int, what: str, last: Process, execution: Execution, kept: bool
) -> Iterator[Stretch]:
    """Nothing says why the last rank is late: while others work on the step, it goes on."""
    theirs = sorted(
        (begin, stop)
        for process, parts in execution.parts.items()
        for begin, stop, _ in parts
        if process is not last and begin < end and stop > start
    )
    for begin, stop in theirs:
        if begin > start:
            yield start, min(begin, end), what
            start = begin
        if min(stop, end) > start:
            yield start, min(stop, end), _kept(PRODUCTIVE, kept)
            start = min(stop, end)
    if end > start:
        yield start, end, what


def _kept(what: str, kept: bool) -> str:
    return what if kept or what != PRODUCTIVE else WASTED


def explained(truth: Truth, shortest_ns: int = 0) -> str:
    """For a person who wonders: neighbours of one class in one line, in seconds."""
    lines: list[list[object]] = []
    for start, end, what in truth.stretches:
        if end - start < shortest_ns:
            continue
        if lines and lines[-1][2] == what:
            lines[-1][1] = end / 1e9
        else:
            lines.append([start / 1e9, end / 1e9, what])
    head = f"from {EPOCH_NS / 1e9:.0f}:"
    return "\n".join([head, *(f"{a:>12} {b:>12}  {what}" for a, b, what in lines)])
