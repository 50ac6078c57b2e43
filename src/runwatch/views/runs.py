"""The states of processes, attempts and runs, read from what was recorded about them.

`life.py` decides the state of one process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.life import Evidence, Key, ShownState, State, ending, heirs, said_done
from runwatch.views.times import to_the_second

ALIVE_WINDOW_SECONDS: Final = 30.0

# A rank that began before a process, and is still heard of this long after, goes on beside it.
_GOES_ON_NS: Final = 10_000_000_000

_TICK_NS: Final = 10_000_000
# A program usually records within this time of its own start: a smaller difference is no clock
# change.
_STARTING_NS: Final = 30_000_000_000


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process's part in one run, and its state."""

    journal: JournalId
    run: RunId
    name: str
    group: str
    host: str
    pid: int
    rank: int
    world_size: int
    attempt: int
    state: State
    reason: str
    """In words; empty when there is nothing to explain."""
    started_ns: int
    ended_ns: int | None
    last_ns: int
    """When the process was last heard of."""
    exit_code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    ahead_ns: int = 0
    """How far its host's clock was moved since the run's first process there began."""
    done: bool | None = False
    """The process said that all its work was done, which exit code 0 does not say.  None: its
    `with` block ended, which also happens when a program is told to stop."""
    lived_ns: int | None = None
    """The process surely lived until then.  This tells which rank went down first.  `ended_ns` does
    not: a busy agent finds several processes gone at once."""
    user: str = ""
    """The user, as the process named them."""
    queued_at_ns: int | None = None
    """Since when the job was wanted, where the process or a scheduler said so."""
    granted_at_ns: int | None = None
    """When the job got its machines, as a scheduler said."""
    born_ns: int = 0
    """When the process began, by its own clock.  It may open a run later."""


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    attempt: int
    state: State
    reason: str
    ranks: int
    hosts: tuple[str, ...]
    started_ns: int
    ended_ns: int | None
    last_ns: int
    processes: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run, in the state of its newest attempt; `started_ns` is that of its first attempt."""

    run: RunId
    name: str
    group: str
    state: State
    reason: str
    attempts: int
    ranks: int
    hosts: tuple[str, ...]
    started_ns: int
    ended_ns: int | None
    last_ns: int
    last_step: int | None
    processes: Mapping[State, int]
    """How many processes of the newest attempt are in each state."""
    stalled: bool = False
    """The run stands still; `reason` says why, as far as that is known."""
    user: str = ""

    @property
    def shown_state(self) -> ShownState:
        return "stalled" if self.stalled else self.state


# ── attempts ───────────────────────────────────────────────────────────────────────────────────


def attempts(processes: Iterable[ProcessRow]) -> dict[Key, int]:
    """The attempt, counted from 1 in each run, that each (journal, run) belongs to.

    Processes that share a non-empty `attempt_key` share an attempt.  Without a key, a rank that is
    already there means that the run was started again.  In an elastic job, a process replaces one
    that is gone, or is added, while others of the attempt go on.  It belongs to their attempt,
    whatever its key.  A forked child belongs to the attempt that ran when it was forked, and never
    begins one.
    """
    numbers: dict[Key, int] = {}
    for rows in _by_run(processes).values():
        numbers |= _attempts_of_run(rows)
    return numbers


def _attempts_of_run(rows: Sequence[ProcessRow]) -> dict[Key, int]:
    numbers: dict[Key, int] = {}
    by_key: dict[str, int] = {}
    newest = 0
    members: dict[int, ProcessRow] = {}
    """Rank -> the process that has this rank now, in the newest attempt."""
    for row in rows:
        if row.role == "child":
            numbers[row.journal, row.run] = max(newest, 1)
            continue
        number = by_key.get(row.attempt_key) if row.attempt_key else None
        if number is None and newest and _joins(row, members):
            number = newest
        if number is None:
            number = newest = newest + 1
            members = {}
        if row.attempt_key:
            by_key[row.attempt_key] = number
        if number == newest:
            members[row.rank] = row
        numbers[row.journal, row.run] = number
    return numbers


def _joins(row: ProcessRow, members: Mapping[int, ProcessRow]) -> bool:
    """Whether the process belongs to the newest attempt, which has these members."""
    before = members.get(row.rank)
    if before is None and not row.attempt_key:
        return True
    if before is not None and before.last_ns >= row.start_ns:
        return False  # the rank still runs: this is another job
    return any(
        other.last_ns > row.start_ns + _GOES_ON_NS
        for rank, other in members.items()
        if rank != row.rank
    )


def _by_run(processes: Iterable[ProcessRow]) -> dict[RunId, list[ProcessRow]]:
    """Processes by run, in order of start.  Agents are left out, and processes without a run.

    A process that opened the same run twice is one process.
    """
    unique = {(row.journal, row.run): row for row in processes if row.run and row.role != "agent"}
    rows = list(unique.values())
    moved = clock_moves(rows)
    by_run: dict[RunId, list[ProcessRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r.start_ns - moved.get(r.journal, 0), r.journal)):
        by_run[row.run].append(row)
    return by_run


def clock_moves(rows: Iterable[ProcessRow]) -> dict[JournalId, int]:
    """By how much each host's clock was set forward since its first process began.  The uptime of
    the host shows how much time really passed."""
    first: dict[tuple[str, str], int] = {}
    moved: dict[JournalId, int] = {}
    for row in sorted(rows, key=lambda row: row.process_start_ticks):
        if not row.boot or not row.process_start_ticks:
            continue
        booted_ns = row.start_ns - row.process_start_ticks * _TICK_NS
        moved_ns = booted_ns - first.setdefault((row.host, row.boot), booted_ns)
        if abs(moved_ns) > _STARTING_NS:
            moved[row.journal] = moved_ns
    return moved


# ── processes ──────────────────────────────────────────────────────────────────────────────────


def process_states(
    processes: Iterable[ProcessRow],
    events: Iterable[EventRow],
    now_ns: int,
    alive_window_s: float = ALIVE_WINDOW_SECONDS,
    *,
    alive: Collection[JournalId] = (),
    gone: Collection[JournalId] = (),
) -> list[ProcessState]:
    """Every process by run, attempt and rank.

    `events` must hold the LIFE_KINDS of these processes, including those that agents wrote about
    them. Other kinds are ignored, and repeated events change nothing.

    `alive` names the journals whose processes were seen alive at `now_ns`.  `gone` names those
    whose processes have ended and whose records have all arrived.
    """
    evidence = Evidence(alive=frozenset(alive), gone=frozenset(gone))
    for event in events:
        evidence.add(event)
    everyone = [row for members in _by_run(processes).values() for row in members]
    evidence.heirs = heirs(everyone, evidence.forks)
    numbers = attempts(everyone)
    moved = clock_moves(everyone)
    rows = [row for row in everyone if row.role != "child"]
    window_ns = int(alive_window_s * 1e9)
    states = [
        _process_state(row, numbers[row.journal, row.run], evidence, now_ns, window_ns)
        for row in rows
    ]
    states = [
        replace(state, ahead_ns=moved[state.journal]) if state.journal in moved else state
        for state in states
    ]
    return sorted(states, key=lambda p: (p.run, p.attempt, p.rank, p.started_ns, p.journal))


def _process_state(
    row: ProcessRow, attempt: int, evidence: Evidence, now_ns: int, window_ns: int
) -> ProcessState:
    started_ns = evidence.started_ns(row)
    now, last_ns = ending(row, evidence, now_ns, window_ns)
    child = evidence.heirs.get(row.journal)
    end = evidence.end(row)
    is_quiet = now.state in ("completed", "lost") and not (end and end.event.explicit)
    if child is not None and is_quiet:
        # The process put itself into the background, so its child's state is its state.
        end = evidence.end(child)
        now, child_ns = ending(child, evidence, now_ns, window_ns)
        last_ns = max(last_ns, child_ns)
        if now.state == "running":
            now = replace(now, reason=f"it goes on as process {child.pid}, in the background")
    return ProcessState(
        journal=row.journal,
        run=row.run,
        name=row.run_name,
        group=row.group,
        host=row.host,
        pid=row.pid,
        rank=row.rank,
        world_size=row.world_size,
        attempt=attempt,
        state=now.state,
        reason=now.reason,
        started_ns=started_ns,
        ended_ns=now.ended_ns,
        last_ns=last_ns,
        exit_code=now.exit_code,
        signal=now.signal,
        out_of_memory=now.out_of_memory,
        done=said_done(end) if now.state == "completed" else False,
        lived_ns=now.ended_ns if now.lived_ns is None else now.lived_ns,
        user=evidence.start(row).user,
        queued_at_ns=evidence.queued_at_ns(row),
        granted_at_ns=evidence.granted_at_ns(row),
        born_ns=row.start_ns,
    )


# ── runs ───────────────────────────────────────────────────────────────────────────────────────


def summarise_attempts(states: Iterable[ProcessState]) -> dict[RunId, list[AttemptSummary]]:
    """The attempts of each run, oldest first."""
    grouped: dict[tuple[RunId, int], list[ProcessState]] = defaultdict(list)
    for state in states:
        grouped[state.run, state.attempt].append(state)
    summaries: dict[RunId, list[AttemptSummary]] = defaultdict(list)
    for run, number in sorted(grouped):
        summaries[run].append(_attempt(number, grouped[run, number]))
    return dict(summaries)


def _attempt(number: int, members: Sequence[ProcessState]) -> AttemptSummary:
    state, reason = _verdict(members)
    ends = [member.ended_ns for member in members if member.ended_ns is not None]
    return AttemptSummary(
        attempt=number,
        state=state,
        reason=reason,
        ranks=len({member.rank for member in members}),
        hosts=tuple(sorted({member.host for member in members})),
        started_ns=min(member.started_ns for member in members),
        ended_ns=None if state == "running" else max(ends, default=None),
        last_ns=max(member.last_ns for member in members),
        processes=dict(Counter(member.state for member in members)),
    )


def _verdict(members: Sequence[ProcessState]) -> tuple[State, str]:
    """The state, and the rank that ended badly first: it usually took the others down."""
    bad = [member for member in members if member.state in ("failed", "killed", "lost")]
    running = sum(member.state == "running" for member in members)
    if not bad:
        reason = next((m.reason for m in members if m.state == "running" and m.reason), "")
        return ("running" if running else "completed"), reason
    first = min(bad, key=lambda member: (member.lived_ns or 0, member.rank))
    reason = _cause(first)
    if running:
        return "running", f"{reason}; {running} of {len(members)} still running"
    return first.state, reason


def _cause(process: ProcessState) -> str:
    when = to_the_second(process.ended_ns or process.last_ns)
    where = f"rank {process.rank}"
    if process.state == "failed":
        return f"{where} failed: {process.reason} on host {process.host} at {when}"
    if process.state == "lost":
        return f"{where} lost: {process.reason} on host {process.host}, last heard of at {when}"
    return f"{where} {process.reason} on host {process.host} at {when}"


def runs_of(states: Iterable[ProcessState], last_steps: Mapping[RunId, int]) -> list[RunSummary]:
    """Every run; the one started last comes first."""
    by_run: dict[RunId, list[ProcessState]] = defaultdict(list)
    for state in states:
        by_run[state.run].append(state)
    summaries = [_summary(run, members, last_steps.get(run)) for run, members in by_run.items()]
    return sorted(summaries, key=lambda run: (-run.started_ns, run.run))


def group_of(members: Iterable[tuple[int, JournalId, str]]) -> str:
    """A run's group, from the start, the journal and the named group of each of its processes.

    The youngest process that named a group decides.  The group is also the run's project: run lists
    and access checks both ask here.
    """
    return max((member for member in members if member[2]), default=(0, "", ""))[2]


def project_of(parts: Iterable[ProcessRow]) -> str | None:
    """The project of the run that these processes take part in; None without such a process.
    Agents do not count.  Forked children count only if no other process is known."""
    known = {row.journal: row for row in parts if row.run and row.role != "agent"}
    grown = [row for row in known.values() if row.role != "child"]
    voters = grown or list(known.values())
    return group_of((row.start_ns, row.journal, row.group) for row in voters) if voters else None


def _summary(run: RunId, members: Sequence[ProcessState], last_step: int | None) -> RunSummary:
    newest_first = sorted(members, key=lambda p: (p.started_ns, p.journal), reverse=True)
    number = max(member.attempt for member in members)
    newest = _attempt(number, [member for member in members if member.attempt == number])
    return RunSummary(
        run=run,
        name=next((member.name for member in newest_first if member.name), run),
        group=group_of((member.born_ns, member.journal, member.group) for member in members),
        state=newest.state,
        reason=newest.reason,
        attempts=number,
        ranks=newest.ranks,
        hosts=newest.hosts,
        started_ns=min(member.started_ns for member in members),
        ended_ns=newest.ended_ns,
        last_ns=max(member.last_ns for member in members),
        last_step=last_step,
        processes=newest.processes,
        user=next((member.user for member in newest_first if member.user), ""),
    )


def of_last_attempt(states: Sequence[ProcessState]) -> list[ProcessState]:
    last = max((state.attempt for state in states), default=0)
    return [state for state in states if state.attempt == last]
