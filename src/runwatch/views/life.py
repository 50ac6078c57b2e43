"""The state of a process: what the process said last, combined with what its agent saw.

`_state` has the rules in their order.  Nothing else in the product decides a state.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from runwatch.record import JournalId, RunId
from runwatch.record.life import Fork, Joined, RunEnd, RunStart
from runwatch.record.node import JobQueued, ProcessExit
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.pods import NO_PODS, Pod, Pods
from runwatch.views.pods import End as PodEnd
from runwatch.views.times import to_the_second

State = Literal["running", "completed", "failed", "killed", "lost"]
STATES: Final[tuple[State, ...]] = ("running", "completed", "failed", "killed", "lost")
ShownState = Literal["running", "stalled", "completed", "failed", "killed", "lost"]
"""What people are told of a run: one that runs and makes no progress is stalled."""
SHOWN_STATES: Final[tuple[ShownState, ...]] = ("running", "stalled", *STATES[1:])

LIFE_KINDS: Final = (
    RunStart.KIND, RunEnd.KIND, ProcessExit.KIND, JobQueued.KIND, Fork.KIND, Joined.KIND,
)  # fmt: skip
"""The events that `process_states` reads."""

# After `run_end` a closing journal may still add records.  The process then waits up to five
# seconds until all are sent.  Such records are no sign of life.
_LAST_WORDS_NS: Final = 7_000_000_000

UNSEEN: Final = "ended normally as far as is known: nobody saw its exit code"

# Launchers send these to the remaining ranks when one has failed.
_ASKED_TO_GO: Final = ("SIGTERM", "SIGINT", "SIGHUP")

Key = tuple[JournalId, RunId]


def heirs(rows: Iterable[ProcessRow], forks: Iterable[EventRow]) -> dict[JournalId, ProcessRow]:
    """The child that goes on for each process that ended.  A program that puts itself into the
    background leaves a child with a session of its own.  Of several children, the one heard of last
    counts."""
    forked = {event.journal: Fork.of(event.body) for event in forks}
    children = {row.journal: row for row in rows if row.role == "child"}
    detached = {journal for journal, fork in forked.items() if fork.detached}
    heirs: dict[JournalId, ProcessRow] = {}
    for journal in detached & children.keys():
        parent = JournalId(forked[journal].parent_journal)
        for _ in range(len(forked)):  # the parent may be a child too; a wrong record may be a ring
            if parent not in children:
                break
            parent = JournalId(forked[parent].parent_journal if parent in forked else "")
        known, child = heirs.get(parent), children[journal]
        if parent and (known is None or known.last_ns < child.last_ns):
            heirs[parent] = child
    return heirs


class End(NamedTuple):
    """What a process said when it ended its run, and when."""

    time_ns: int
    event: RunEnd


class Exit(NamedTuple):
    """How a process ended, as its agent saw it."""

    time_ns: int
    event: ProcessExit

    @property
    def lived_until_ns(self) -> int:
        return self.time_ns if self.event.lived_ns is None else self.event.lived_ns

    @property
    def signal(self) -> str | None:
        number = self.event.signal
        return number or None if isinstance(number, str) else name_of_signal(number)

    @property
    def fault(self) -> str:
        """The signal of the fault whose stacks the process wrote itself; "" if it wrote none."""
        return self.event.fault or ""

    @property
    def is_explained(self) -> bool:
        return self.signal is not None or self.event.code is not None or bool(self.fault)


def name_of_signal(number: int | None) -> str | None:
    if not number:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def said_done(end: End | None) -> bool | None:
    return end.event.done if end is not None and end.event.is_completed else False


# ── what is known of the processes ─────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Evidence:
    """All that is known about the lives of these processes."""

    starts: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    first_words: dict[Key, RunStart] = field(default_factory=dict)
    """What each process said when it first began."""
    ends: dict[Key, list[End]] = field(default_factory=lambda: defaultdict(list))
    exits: dict[JournalId, Exit] = field(default_factory=dict)
    queues: dict[JournalId, tuple[int, JobQueued]] = field(default_factory=dict)
    """The first word of a scheduler about each job, and when it came."""
    left: dict[Key, int] = field(default_factory=dict)
    """When a process went over to another run."""
    alive: frozenset[JournalId] = frozenset()
    gone: frozenset[JournalId] = frozenset()
    forks: list[EventRow] = field(default_factory=list)
    heirs: dict[JournalId, ProcessRow] = field(default_factory=dict)
    pods: Pods = NO_PODS

    def add(self, event: EventRow) -> None:
        key = event.journal, event.run
        if event.kind == RunStart.KIND:
            self.starts[key].append(event.time_ns)
            if key not in self.first_words:
                self.first_words[key] = RunStart.of(event.body)
        elif event.kind == RunEnd.KIND:
            self.ends[key].append(End(event.time_ns, RunEnd.of(event.body)))
        elif event.kind == ProcessExit.KIND:
            self._add_exit(Exit(event.time_ns, ProcessExit.of(event.body)))
        elif event.kind == JobQueued.KIND:
            self._add_queue(event.time_ns, JobQueued.of(event.body))
        elif event.kind == Fork.KIND:
            self.forks.append(event)
        elif event.kind == Joined.KIND:
            self.left[key] = max(event.time_ns, self.left.get(key, 0))

    def _add_exit(self, exit: Exit) -> None:
        journal = JournalId(exit.event.journal)
        known = self.exits.get(journal)
        # A restarted agent may say "gone" after its predecessor said "SIGKILL".
        if known is None or not known.is_explained and exit.is_explained:
            self.exits[journal] = exit

    def _add_queue(self, time_ns: int, queued: JobQueued) -> None:
        journal = JournalId(queued.journal)
        known = self.queues.get(journal)
        if known is None or time_ns < known[0]:
            self.queues[journal] = time_ns, queued

    def has_left(self, row: ProcessRow) -> bool:
        """Whether it went over to another run; a launcher's command may have come back."""
        key = row.journal, row.run
        return key in self.left and self.left[key] >= max(self.starts.get(key, [0]))

    def started_ns(self, row: ProcessRow) -> int:
        return min(self.starts.get((row.journal, row.run), [row.start_ns]))

    def start(self, row: ProcessRow) -> RunStart:
        return self.first_words.get((row.journal, row.run)) or RunStart()

    def pod(self, row: ProcessRow) -> Pod | None:
        return self.pods.get(self.start(row).pod_uid)

    def pod_end(self, row: ProcessRow, last_ns: int) -> PodEnd | None:
        """How the process ended, as far as its pod says."""
        start = self.start(row)
        pod = self.pods.get(start.pod_uid)
        return None if pod is None else pod.end_of(start.container, row.start_ns, last_ns)

    def queued_at_ns(self, row: ProcessRow) -> int | None:
        """The process's own word comes first: its user may know better than the scheduler."""
        own = self.start(row).queued_at_ns
        return self._queue(row).queued_at_ns if own is None else own

    def granted_at_ns(self, row: ProcessRow) -> int | None:
        return self._queue(row).granted_at_ns

    def _queue(self, row: ProcessRow) -> JobQueued:
        return self.queues[row.journal][1] if row.journal in self.queues else JobQueued()

    def end(self, row: ProcessRow) -> End | None:
        """The process's last word, unless it opened the run again later.  `finish()` decides."""
        key = row.journal, row.run
        reopened = max(self.starts.get(key, [row.start_ns]))
        ends = [end for end in self.ends.get(key, ()) if end.time_ns >= reopened]
        explicit = [end for end in ends if end.event.explicit]
        if explicit:
            return min(explicit, key=lambda end: end.time_ns)
        return max(ends, key=lambda end: end.time_ns, default=None)


# ── how a process stands ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ending:
    state: State
    reason: str = ""
    ended_ns: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    lived_ns: int | None = None


def ending(row: ProcessRow, evidence: Evidence, now_ns: int, window_ns: int) -> tuple[Ending, int]:
    """The state of the process, and when it was last heard of.  Its own last word and what its
    agent saw stand; what its pod says fills the gap where nobody saw the end."""
    last_ns = max(row.last_ns, row.start_ns)
    # A journal that an import writes to now tells of a process that ended long ago.
    if row.journal in evidence.alive and not evidence.start(row).imported:
        last_ns = max(last_ns, now_ns)
    gone = row.journal in evidence.gone
    window_ns = max(window_ns, int((evidence.start(row).quiet_seconds or 0.0) * 1e9))
    recent = not gone and now_ns - last_ns <= window_ns
    found = _state(evidence.end(row), evidence.exits.get(row.journal), last_ns, recent, gone)
    if found.state == "lost":
        found = _as_the_pod_says(found, row, evidence, last_ns)
    elif found.reason == UNSEEN:
        found = _with_the_code_that_the_pod_saw(found, row, evidence, last_ns)
    elif found.state in ("failed", "killed") and (pod := evidence.pod(row)) is not None:
        found = _with_what_the_pod_says(found, pod, evidence.pod_end(row, last_ns))
    return found, last_ns


def _state(
    end: End | None, process_exit: Exit | None, last_ns: int, recent: bool, gone: bool
) -> Ending:
    """The rules, strongest first."""
    if end is not None and end.event.explicit:
        return _from_run_end(end)
    if process_exit is not None and process_exit.signal is not None:
        return _from_signal(process_exit)
    if process_exit is not None and process_exit.event.code is not None:
        return _from_exit_code(end, process_exit)
    if end is not None:
        # The interpreter ended.  The process may live on: an exit handler hangs, or a thread still
        # trains.  Then later records, or its agent, show it.
        lives_on = recent and process_exit is None and last_ns > end.time_ns + _LAST_WORDS_NS
        return Ending("running") if lives_on else _from_run_end(end)
    if process_exit is not None and (fault := process_exit.fault):
        reason = f"killed by {fault}, as its own stacks say"
        return Ending("killed", reason, process_exit.time_ns, None, fault)
    if process_exit is not None or gone:
        return Ending("lost", "ended without a word; cause unknown", last_ns)
    if recent:
        return Ending("running")
    return Ending("lost", f"silent since {to_the_second(last_ns)}", last_ns)


def _as_the_pod_says(lost: Ending, row: ProcessRow, evidence: Evidence, last_ns: int) -> Ending:
    """Nobody saw the process end: what happened to its pod tells how it did."""
    pod = evidence.pod(row)
    end = evidence.pod_end(row, last_ns)
    if pod is None:
        return lost
    if end is None:
        words = pod.silent_node(last_ns)
        return replace(lost, reason=f"{lost.reason}; {words}") if words else lost
    by = name_of_signal(end.signal) or ("SIGKILL" if end.out_of_memory else None)
    why = _of_pod(pod, end)
    if end.exit_code != 0 and (by is not None or end.how in _SENT_AWAY):
        reason = ", ".join(filter(None, (f"killed by {by}" if by else "", why)))
        memory = end.out_of_memory
        return Ending("killed", reason, end.time_ns, None, by, memory, last_ns)
    if end.exit_code or end.how == "failed":
        code = f"its container ended with exit code {end.exit_code}" if end.exit_code else ""
        reason = ", ".join(filter(None, (code, why)))
        return Ending("failed", reason, end.time_ns, end.exit_code, lived_ns=last_ns)
    reason = "; ".join(filter(None, ("ended normally, as its pod says", why)))
    return Ending("completed", reason, end.time_ns, end.exit_code)


def _with_the_code_that_the_pod_saw(
    seen: Ending, row: ProcessRow, evidence: Evidence, last_ns: int
) -> Ending:
    """After its last words a program may exit with any code; only that of the container's first
    process is the container's."""
    end = evidence.pod_end(row, last_ns)
    if end is None or end.exit_code is None:
        return seen
    if row.pid == _FIRST:
        return _as_the_pod_says(seen, row, evidence, last_ns)
    if not end.exit_code:
        return seen
    return replace(seen, reason=f"{UNSEEN}; its container ended with exit code {end.exit_code}")


def _with_what_the_pod_says(seen: Ending, pod: Pod, end: PodEnd | None) -> Ending:
    """Somebody saw how the process ended; the pod may say why."""
    if end is None or seen.out_of_memory:
        return seen
    if end.out_of_memory:
        return replace(seen, out_of_memory=True, reason=f"{seen.reason}, out of memory")
    if seen.signal in _ASKED_TO_GO or seen.signal == "SIGKILL":
        why = _of_pod(pod, end) if end.how in _SENT_AWAY else ""
        return replace(seen, reason=f"{seen.reason}, {why}") if why else seen
    return seen


def _of_pod(pod: Pod, end: PodEnd) -> str:
    if end.out_of_memory:
        return "out of memory"
    word = _HOW.get(end.how, "")
    said = f"pod {pod.pod} {word}" if word else ""
    return f"{said}: {end.why}" if said and end.why else said


_HOW: Final = {
    "evicted": "evicted",
    "preempted": "preempted",
    "deleted": "deleted",
    "node_lost": "lost with its node",
    "failed": "failed",
}
_SENT_AWAY: Final = ("evicted", "preempted", "deleted", "node_lost")
_FIRST: Final = 1
"""The number of a container's first process, as that sees it."""


def _from_run_end(end: End) -> Ending:
    event, exception, reason = end.event, end.event.exception_text, end.event.reason or ""
    if exception and not event.explicit:
        if event.status == "killed":  # Ctrl-C
            return Ending("killed", f"interrupted ({exception})", end.time_ns)
        return Ending("failed", exception, end.time_ns)
    code, by = event.exit_code, event.signal
    if event.status == "failed":
        return Ending("failed", reason or exception or "said it failed", end.time_ns, code)
    if event.status == "killed":
        return Ending("killed", reason or "said it was killed", end.time_ns, None, by)
    return Ending("completed", reason or ("" if event.explicit else UNSEEN), end.time_ns, code)


def _from_signal(process_exit: Exit) -> Ending:
    name, fault, event = process_exit.signal, process_exit.fault, process_exit.event
    reason = f"killed by {name}"
    if fault and fault != name:
        # The first signal is the cause.  The second came while stacks of running threads were read.
        name, reason = fault, f"killed by {fault} (then {name} while its stacks were written)"
    if event.oom:
        reason += ", out of memory"
    if event.core_dumped:
        reason += ", core dumped"
    time_ns = process_exit.time_ns
    lived_ns = time_ns if name in _ASKED_TO_GO else process_exit.lived_until_ns
    return Ending("killed", reason, time_ns, None, name, bool(event.oom), lived_ns)


def _from_exit_code(end: End | None, process_exit: Exit) -> Ending:
    code, time_ns = process_exit.event.code, process_exit.time_ns
    exception = end.event.exception_text if end else ""
    if not code and not exception:
        return Ending("completed", (end.event.reason or "") if end else "", time_ns, code)
    reason = f"{exception} (exit code {code})" if exception else f"exit code {code}"
    lived_ns = end.time_ns if end and exception else process_exit.lived_until_ns
    return Ending("failed", reason, time_ns, code, lived_ns=lived_ns)
