"""How processes, attempts and runs stand, read from what was recorded about them.

`life.py` says how one process stands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.life import Evidence, Key, State, ending, heirs, said_done
from runwatch.views.times import to_the_second

ALIVE_WINDOW_SECONDS: Final = 30.0

# Who is heard of so long after a process began, and began before it, goes on beside it.
_GOES_ON_NS: Final = 10_000_000_000

_TICK_NS: Final = 10_000_000
# A program has begun to record within this time of its own start, as a rule: less is no clock.
_STARTING_NS: Final = 30_000_000_000


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process's part in one run, and how it stands."""

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
    """When it was last heard of."""
    exit_code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    ahead_ns: int = 0
    """How far the clock of its host had been moved since the run's first process there began."""
    done: bool | None = False
    """It said that it had done all there was to do, which exit code 0 does not say; None: it came
    to the end of its `with` block, as a program also does that is told to stop."""
    lived_ns: int | None = None
    """It surely lived until then: who went down first is told by this, since `ended_ns` is when
    its agent found it gone, and a busy agent finds several gone at once."""
    user: str = ""
    """Whose it is, as it said itself."""
    queued_at_ns: int | None = None
    """From when on its job was wanted, where somebody told it: the process, or a scheduler."""
    granted_at_ns: int | None = None
    """When its job had its machines, as a scheduler told."""
    born_ns: int = 0
    """When the process began, by its own clock; it may open a run later."""


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
    """A run as its newest attempt leaves it; `started_ns` is that of its first attempt."""

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
    """It stands still; `reason` says why, as far as that is known."""
    user: str = ""


# ── attempts ───────────────────────────────────────────────────────────────────────────────────


def attempts(processes: Iterable[ProcessRow]) -> dict[Key, int]:
    """The attempt, counted from 1 in each run, that each (journal, run) belongs to.

    Processes that share a non-empty `attempt_key` share an attempt.  Without a key, a rank that
    is already there means that the run was started again.  A process that takes the place of one
    that is gone, or comes in addition, while others of the attempt go on, belongs to it whatever
    its key: the job is elastic.  A forked child belongs to the attempt of its time, and has no say
    in it.
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
    """Of the newest attempt, by rank: who has it now."""
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
    """Whether it belongs to the attempt that is there."""
    before = members.get(row.rank)
    if before is None and not row.attempt_key:
        return True
    if before is not None and before.last_ns >= row.start_ns:
        return False  # it is still there: this is another job
    return any(
        other.last_ns > row.start_ns + _GOES_ON_NS
        for rank, other in members.items()
        if rank != row.rank
    )


def _by_run(processes: Iterable[ProcessRow]) -> dict[RunId, list[ProcessRow]]:
    """Processes by run in order of start.  Agents only report; a process without a run has none.

    A process that opened the same run twice is one process.
    """
    unique = {(row.journal, row.run): row for row in processes if row.run and row.role != "agent"}
    rows = list(unique.values())
    moved = clock_moves(rows)
    found: dict[RunId, list[ProcessRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r.start_ns - moved.get(r.journal, 0), r.journal)):
        found[row.run].append(row)
    return found


def clock_moves(rows: Iterable[ProcessRow]) -> dict[JournalId, int]:
    """Where a host's clock was set between the starts of two processes: by how much it was put
    forward since the first.  How long the host runs tells the time that really passed."""
    first: dict[tuple[str, str], int] = {}
    found: dict[JournalId, int] = {}
    for row in sorted(rows, key=lambda row: row.process_start_ticks):
        if not row.boot or not row.process_start_ticks:
            continue
        booted_ns = row.start_ns - row.process_start_ticks * _TICK_NS
        moved_ns = booted_ns - first.setdefault((row.host, row.boot), booted_ns)
        if abs(moved_ns) > _STARTING_NS:
            found[row.journal] = moved_ns
    return found


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

    `events` must hold the LIFE_KINDS of these processes, also those that agents wrote about them;
    others are ignored, repeats are harmless.
    `alive` names the journals whose processes were seen alive at `now_ns`, `gone` those whose
    processes are known to be no more, and whose every record is here.
    """
    evidence = Evidence(alive=frozenset(alive), gone=frozenset(gone))
    for event in events:
        evidence.add(event)
    everyone = [row for found in _by_run(processes).values() for row in found]
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
    is_quiet = now.state in ("completed", "lost") and not (end and end.told.explicit)
    if child is not None and is_quiet:
        # It has put itself into the background: how that stands is how this stands.
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
    found: dict[RunId, list[AttemptSummary]] = defaultdict(list)
    for run, number in sorted(grouped):
        found[run].append(_attempt(number, grouped[run, number]))
    return dict(found)


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
    """The state, and who ended badly first: the others usually went down because of it."""
    bad = [member for member in members if member.state in ("failed", "killed", "lost")]
    running = sum(member.state == "running" for member in members)
    if not bad:
        said = next((m.reason for m in members if m.state == "running" and m.reason), "")
        return ("running" if running else "completed"), said
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
    """Every run, the one started last first."""
    by_run: dict[RunId, list[ProcessState]] = defaultdict(list)
    for state in states:
        by_run[state.run].append(state)
    summaries = [_summary(run, found, last_steps.get(run)) for run, found in by_run.items()]
    return sorted(summaries, key=lambda run: (-run.started_ns, run.run))


def group_of(members: Iterable[tuple[int, JournalId, str]]) -> str:
    """A run's group, by when each of its processes began, its journal, and the group it named.

    The youngest process that named one decides.  The group is also the run's project, so lists and
    whoever decides who may see a run ask here.
    """
    return max((member for member in members if member[2]), default=(0, "", ""))[2]


def project_of(parts: Iterable[ProcessRow]) -> str | None:
    """The project of the run that these take part in; None: nobody does.  Agents only report, and
    a forked child has no say unless nobody else is known."""
    known = {row.journal: row for row in parts if row.run and row.role != "agent"}
    grown = [row for row in known.values() if row.role != "child"]
    said = grown or list(known.values())
    return group_of((row.start_ns, row.journal, row.group) for row in said) if said else None


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
