"""How a process ended: what it said and what its agent saw stand, and its pod says the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from runwatch.record import JournalId, RunId
from runwatch.record.life import RunEnd, RunStart
from runwatch.record.node import JobQueued, ProcessExit
from runwatch.rows import EventRow
from runwatch.views.pods import Pods
from runwatch.views.runs import ProcessState, process_states, runs_of
from tests.unit.views.rows import START, process
from tests.unit.views.test_pods import T0, at, ended, row, started

MADE = [row(0, "created"), row(60, "scheduled", node="node-1"), started(90)]
OOM = row(200, "oom_killed", container="train", exit_code=137)
EVICTED = [row(198, "evicted", message="low on memory"), ended(200, 137)]


def said(seconds: float, message: Any) -> EventRow:
    return EventRow(
        JournalId("j0"), RunId("run"), "host-a", 0, at(seconds), None, message.KIND, message.body()
    )


def state_of(
    pods: Sequence[EventRow], *events: EventRow, now: float = 1_000, pid: int = 100, **more: Any
) -> ProcessState:
    begun = RunStart(run="run", pod="pod-u", pod_uid="u", container="train", node="node-1")
    shift = (T0 - START) / 10**9
    rows = [replace(process(start=shift + 100, last=shift + 195), pid=pid)]
    life = [said(100, replace(begun, **more)), *events]
    (state,) = process_states(rows, life, at(now), pods=Pods([*MADE, *pods]))
    return state


def exited(seconds: float, **how: Any) -> EventRow:
    return said(seconds, ProcessExit(journal="j0", pid=100, **how))


DONE = said(199, RunEnd("completed", explicit=True, done=True))


@pytest.mark.parametrize(
    "pods, events, state, reason",
    [
        # Nobody saw it.
        ([OOM], [], "killed", "killed by SIGKILL, out of memory"),
        (EVICTED, [], "killed", "killed by SIGKILL, pod pod-u evicted: low on memory"),
        ([ended(200)], [], "completed", "ended normally, as its pod says"),
        ([ended(200, 2)], [], "failed", "its container ended with exit code 2"),
        # Its agent did, and the pod says why.
        (EVICTED, [exited(200, signal=9)], "killed", "SIGKILL, pod pod-u evicted: low on memory"),
        ([OOM], [exited(200, signal=9)], "killed", "killed by SIGKILL, out of memory"),
        ([OOM], [exited(200, signal=9, oom=True)], "killed", "killed by SIGKILL, out of memory"),
        ([row(190, "preempted")], [exited(200, signal=15)], "killed", "pod pod-u preempted"),
        # It failed by itself, whatever became of the pod then.
        ([ended(200, 1), row(203, "deleted")], [exited(200, code=1)], "failed", "exit code 1"),
        ([row(203, "evicted")], [exited(200, code=1)], "failed", "exit code 1"),
        # It was done.
        ([OOM], [DONE], "completed", ""),
        ([row(203, "deleted"), ended(204, 137)], [DONE], "completed", ""),
        ([row(203, "deleted"), ended(204, 143)], [exited(200, code=0)], "completed", ""),
    ],
)
def test_who_saw_it_has_the_last_word(
    pods: Sequence[EventRow], events: Sequence[EventRow], state: str, reason: str
) -> None:
    found = state_of(pods, *events)
    assert (found.state, found.reason.endswith(reason)) == (state, True), found.reason
    assert found.out_of_memory == ("out of memory" in reason)


LAST_WORDS = said(199, RunEnd("completed"))


@pytest.mark.parametrize(
    "pid, pods, state, reason",
    [
        (1, [ended(200, 3)], "failed", "its container ended with exit code 3"),
        (1, [row(198, "deleted"), ended(200, 143)], "killed", "SIGTERM, pod pod-u deleted"),
        (1, [ended(200)], "completed", "ended normally, as its pod says"),
        (1, [], "completed", "nobody saw its exit code"),
        # One of several in its container: the code may be another's.
        (
            7,
            [ended(200, 3)],
            "completed",
            "saw its exit code; its container ended with exit code 3",
        ),
        (7, [ended(200)], "completed", "nobody saw its exit code"),
    ],
)
def test_an_exit_code_after_the_last_words_is_the_pods_to_tell(
    pid: int, pods: Sequence[EventRow], state: str, reason: str
) -> None:
    """`sys.exit(3)` in a pod whose agent cannot see its processes."""
    found = state_of(pods, LAST_WORDS, pid=pid)
    assert (found.state, found.reason.endswith(reason)) == (state, True), found.reason
    assert found.exit_code == {"failed": 3, "killed": None}.get(state, found.exit_code)


def test_a_process_that_is_still_heard_of_runs() -> None:
    assert state_of([row(180, "node_not_ready", message="x")], now=200).state == "running"


def test_a_process_that_is_lost_with_a_silent_node_says_so() -> None:
    found = state_of([row(240, "node_not_ready", message="stopped posting")])
    assert found.state == "lost"
    assert found.reason.endswith("its node node-1 is not heard of: stopped posting")


def test_the_queue_is_known_from_the_pod_where_nobody_else_says_it() -> None:
    told = state_of([])
    assert (told.queued_at_ns, told.granted_at_ns) == (at(0), at(60))
    assert state_of([], queued_at_ns=at(-500)).queued_at_ns == at(-500)
    by_scheduler = said(100, JobQueued(journal="j0", queued_at_ns=at(-9), granted_at_ns=at(70)))
    told = state_of([], by_scheduler)
    assert (told.queued_at_ns, told.granted_at_ns) == (at(-9), at(70))


def test_why_the_next_attempt_does_not_run_is_said_of_a_run_that_is_down() -> None:
    waiting = [
        row(300, "created", uid="next"),
        row(301, "unschedulable", uid="next", message="no GPU"),
    ]
    words = "pod pod-next: waiting for a node: no GPU"
    for last, said_so, expected in (
        ([ended(200, 2)], [], words),
        ([ended(200)], [], words),  # who is told to go may end well
        ([ended(200)], [DONE], ""),
    ):
        pods = Pods([*MADE, *last, *waiting])
        (run,) = runs_of([state_of([*last, *waiting], *said_so)], {}, pods)
        assert run.waits == expected
