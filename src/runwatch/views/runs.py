"""The states of processes, attempts and runs, read from what was recorded about them.

`life.py` decides the state of one process, and `attempts.py` which attempt it belongs to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.attempts import attempts, by_run, clock_moves
from runwatch.views.life import Evidence, ShownState, State, ending, heirs, said_done
from runwatch.views.pods import NO_PODS, Pods, trouble
from runwatch.views.times import to_the_second

ALIVE_WINDOW_SECONDS: Final = 30.0

# An attempt that is heard of this long after a later one began goes on beside it.
AT_ONCE_NS: Final = 10_000_000_000

AT_ONCE: Final = "give one of them another name or id"
"""What to do about two jobs of one name."""


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
    is_launcher: bool = False
    """It started the ranks and waits for them; it is none itself."""
    imported: bool = False
    """It was read from a log of another tool."""
    pod: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    node: str = ""
    """The cluster's name for the machine."""
    workload: str = ""
    """JobSet/llama."""
    workload_uid: str = ""


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
    """A run, in the state of its newest attempt, of those that go on if some do; `started_ns` is
    that of its first attempt."""

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
    by_exec: bool = False
    """`runwatch exec` started it: what is known of it is what hooks saw."""
    imported: bool = False
    """It was read from a log of another tool: nobody watched it."""
    jobs: int = 1
    """How many jobs of this name run at once."""
    jobs_since_ns: int = 0
    """When the last of them began."""
    workload: str = ""
    workload_uid: str = ""
    """Of the process that began last and said it."""
    waits: str = ""
    """Why nothing of it runs, in the cluster's words, though pods are there that shall."""

    @property
    def shown_state(self) -> ShownState:
        return "stalled" if self.stalled else self.state


# ── processes ──────────────────────────────────────────────────────────────────────────────────


def process_states(
    processes: Iterable[ProcessRow],
    events: Iterable[EventRow],
    now_ns: int,
    alive_window_s: float = ALIVE_WINDOW_SECONDS,
    *,
    alive: Collection[JournalId] = (),
    gone: Collection[JournalId] = (),
    pods: Pods = NO_PODS,
) -> list[ProcessState]:
    """Every process by run, attempt and rank.  One that went over to another run is only there.

    `events` must hold the LIFE_KINDS of these processes, including those that agents wrote about
    them. Other kinds are ignored, and repeated events change nothing.

    `alive` names the journals whose processes were seen alive at `now_ns`.  `gone` names those
    whose processes have ended and whose records have all arrived.  `pods` are those of these runs.
    """
    evidence = Evidence(alive=frozenset(alive), gone=frozenset(gone), pods=pods)
    for event in events:
        evidence.add(event)
    everyone = [row for members in by_run(processes).values() for row in members]
    evidence.heirs = heirs(everyone, evidence.forks)
    numbers = attempts(everyone)
    moved = clock_moves(everyone)
    rows = [row for row in everyone if row.role != "child" and not evidence.has_left(row)]
    window_ns = int(alive_window_s * 1e9)
    states = [
        _process_state(row, numbers[row.journal, row.run], evidence, now_ns, window_ns)
        for row in rows
    ]
    states = [
        replace(state, ahead_ns=moved[state.journal]) if state.journal in moved else state
        for state in states
    ]
    return sorted(_queued_as_pods_say(states, pods) if pods else states, key=_place)


def _queued_as_pods_say(states: Sequence[ProcessState], pods: Pods) -> list[ProcessState]:
    """Where neither a process nor a scheduler says how long an attempt was in the queue: from its
    first pod's creation until the last one had a node."""
    attempts: dict[tuple[RunId, int], list[ProcessState]] = defaultdict(list)
    for state in states:
        attempts[state.run, state.attempt].append(state)
    found: list[ProcessState] = []
    for members in attempts.values():
        mine = [pod for member in members if (pod := pods.get(member.pod_uid)) is not None]
        created = [pod.created_ns for pod in mine if pod.created_ns is not None]
        if created and all(member.queued_at_ns is None for member in members):
            granted = [pod.scheduled_ns for pod in mine if pod.scheduled_ns is not None]
            members[0] = replace(
                members[0], queued_at_ns=min(created), granted_at_ns=max(granted, default=None)
            )
        found += members
    return found


def queue_of(
    members: Iterable[ProcessState], before_ns: int, start_ns: int
) -> tuple[int, int] | None:
    """When the job of a later attempt was in the queue.  The attempt began at `start_ns`.

    This counts only if the job was queued after the attempt before it began, at `before_ns`: a
    restart within one job keeps its machines.
    """
    mine = list(members)
    queued = [at for member in mine if (at := member.queued_at_ns) is not None and at > before_ns]
    if not queued:
        return None
    granted = [at for one in mine if (at := one.granted_at_ns) is not None and at >= min(queued)]
    away = min(queued), min([start_ns, *granted])
    return away if away[0] < away[1] else None


def _place(state: ProcessState) -> tuple[str, int, int, int, str]:
    """The launcher of an attempt comes before its ranks."""
    rank = -1 if state.is_launcher else state.rank
    return state.run, state.attempt, rank, state.started_ns, state.journal


def _process_state(
    row: ProcessRow, attempt: int, evidence: Evidence, now_ns: int, window_ns: int
) -> ProcessState:
    started_ns = evidence.started_ns(row)
    now, last_ns = ending(row, evidence, now_ns, window_ns)
    child, start = evidence.heirs.get(row.journal), evidence.start(row)
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
        user=start.user,
        queued_at_ns=evidence.queued_at_ns(row),
        granted_at_ns=evidence.granted_at_ns(row),
        born_ns=row.start_ns,
        is_launcher=row.role == "launcher",
        imported=bool(start.imported),
        pod=start.pod,
        pod_namespace=start.pod_namespace,
        pod_uid=start.pod_uid,
        node=start.node,
        workload=start.workload,
        workload_uid=start.workload_uid,
    )


# ── runs ───────────────────────────────────────────────────────────────────────────────────────


def ranks_of(states: Iterable[ProcessState]) -> list[ProcessState]:
    """Without launchers, unless there is nothing else in their attempt."""
    everyone = list(states)
    led = {(state.run, state.attempt) for state in everyone if not state.is_launcher}
    return [s for s in everyone if not s.is_launcher or (s.run, s.attempt) not in led]


def summarise_attempts(states: Iterable[ProcessState]) -> dict[RunId, list[AttemptSummary]]:
    """The attempts of each run, oldest first."""
    by_run: dict[RunId, list[ProcessState]] = defaultdict(list)
    for state in states:
        by_run[state.run].append(state)
    return {run: _attempts(by_run[run]) for run in sorted(by_run)}


def _attempts(members: Sequence[ProcessState]) -> list[AttemptSummary]:
    grouped: dict[int, list[ProcessState]] = defaultdict(list)
    for member in members:
        grouped[member.attempt].append(member)
    going = going_on(members)
    summaries = []
    for number in sorted(grouped):
        summary = _attempt(number, grouped[number])
        if len(going) > 1 and number in going:
            others = [other for other in going if other != number]
            summary = replace(summary, reason=_beside(summary.reason, others))
        summaries.append(summary)
    return summaries


def _beside(reason: str, others: Sequence[int]) -> str:
    word = "attempt" if len(others) == 1 else "attempts"
    beside = f"runs at the same time as {word} {', '.join(map(str, others))}: {AT_ONCE}"
    return f"{reason}; {beside}" if reason else beside


def going_on(members: Iterable[ProcessState]) -> list[int]:
    """The attempts of a run that go on, oldest first.  More than one: two jobs have one name."""
    heard: dict[int, int] = {}
    begun: dict[int, int] = {}
    for member in ranks_of(members):
        number = member.attempt
        begun[number] = min(begun.get(number, member.started_ns), member.started_ns)
        if member.state == "running":
            heard[number] = max(heard.get(number, 0), member.last_ns)
    going, later_ns = [], None
    for number in sorted(begun, reverse=True):
        if number in heard and (later_ns is None or heard[number] > later_ns + AT_ONCE_NS):
            going.append(number)
        later_ns = max(later_ns or 0, begun[number])
    return going[::-1]


def _attempt(number: int, members: Sequence[ProcessState]) -> AttemptSummary:
    state, reason = _verdict(members)
    counted = ranks_of(members)
    ends = [member.ended_ns for member in members if member.ended_ns is not None]
    return AttemptSummary(
        attempt=number,
        state=state,
        reason=reason,
        ranks=len({member.rank for member in counted if not member.is_launcher}),
        hosts=tuple(sorted({member.host for member in counted})),
        started_ns=min(member.started_ns for member in counted),
        ended_ns=None if state == "running" else max(ends, default=None),
        last_ns=max(member.last_ns for member in members),
        processes=dict(Counter(member.state for member in counted)),
    )


def _verdict(members: Sequence[ProcessState]) -> tuple[State, str]:
    """The ranks' state.  The command that started them may go on, or fail when they are done."""
    ranks = ranks_of(members)
    state, reason = _verdict_of(ranks)
    launchers = [] if len(ranks) == len(members) else [m for m in members if m.is_launcher]
    if state != "running" and any(launcher.state == "running" for launcher in launchers):
        return "running", f"{reason}; the command goes on" if reason else "the command goes on"
    return _verdict_of(launchers) if launchers and state == "completed" else (state, reason)


def _verdict_of(members: Sequence[ProcessState]) -> tuple[State, str]:
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
    where = who(process)
    if process.state == "failed":
        return f"{where} failed: {process.reason} on host {process.host} at {when}"
    if process.state == "lost":
        return f"{where} lost: {process.reason} on host {process.host}, last heard of at {when}"
    return f"{where} {process.reason} on host {process.host} at {when}"


def who(process: ProcessState) -> str:
    return "the command" if process.is_launcher else f"rank {process.rank}"


def runs_of(
    states: Iterable[ProcessState], last_steps: Mapping[RunId, int], pods: Pods = NO_PODS
) -> list[RunSummary]:
    """Every run; the one started last comes first."""
    by_run: dict[RunId, list[ProcessState]] = defaultdict(list)
    for state in states:
        by_run[state.run].append(state)
    summaries = [
        _summary(run, members, last_steps.get(run), pods) for run, members in by_run.items()
    ]
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


def _summary(
    run: RunId, members: Sequence[ProcessState], last_step: int | None, pods: Pods
) -> RunSummary:
    newest_first = sorted(members, key=lambda p: (p.started_ns, p.journal), reverse=True)
    number = max(member.attempt for member in members)
    going = going_on(members)
    current = going[-1] if going else number
    newest = _attempt(current, [member for member in members if member.attempt == current])
    of = next((member for member in newest_first if member.workload_uid), None)
    waits = _waits(newest, members, pods) if pods else ""
    return RunSummary(
        run=run,
        name=next((member.name for member in newest_first if member.name), run),
        group=group_of((member.born_ns, member.journal, member.group) for member in members),
        state=newest.state,
        reason="; ".join(filter(None, (newest.reason, waits))),
        attempts=number,
        ranks=newest.ranks,
        hosts=newest.hosts,
        started_ns=min(member.started_ns for member in members),
        ended_ns=newest.ended_ns,
        last_ns=max(member.last_ns for member in members),
        last_step=last_step,
        processes=newest.processes,
        user=next((member.user for member in newest_first if member.user), ""),
        by_exec=any(member.is_launcher for member in members if member.attempt == current),
        imported=all(member.imported for member in members),
        jobs=max(len(going), 1),
        jobs_since_ns=newest.started_ns,
        workload=of.workload if of else "",
        workload_uid=of.workload_uid if of else "",
        waits=waits,
    )


def _waits(newest: AttemptSummary, members: Sequence[ProcessState], pods: Pods) -> str:
    """What keeps the pods of the next attempt from running."""
    said_done = any(m.done for m in members if m.attempt == newest.attempt)
    if newest.state == "running" or said_done:
        return ""
    known = {member.pod_uid for member in members}
    since_ns = newest.last_ns if newest.ended_ns is None else newest.ended_ns
    if newest.state == "completed":  # who is sent away may end well
        return trouble(pods.coming(since_ns, known))
    own = (pod for member in members if (pod := pods.get(member.pod_uid)) is not None)
    looping = [pod for pod in own if pod.phase() != "ended"]
    return trouble([*pods.coming(since_ns, known), *looping])


def of_last_attempt(states: Sequence[ProcessState]) -> list[ProcessState]:
    """The ranks of the run's last attempt, of those that go on if some do.  `states` are of one
    run."""
    last = max(going_on(states) or [state.attempt for state in states], default=0)
    return ranks_of(state for state in states if state.attempt == last)
