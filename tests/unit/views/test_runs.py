"""Every rule about how processes, attempts and runs stand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.life import STATES, UNSEEN
from runwatch.views.runs import (
    ProcessState,
    RunSummary,
    going_on,
    of_last_attempt,
    process_states,
    runs_of,
    summarise_attempts,
)
from runwatch.views.warnings import of_jobs
from tests.unit.views.rows import SECOND, START, process, process_rows

WINDOW = 30
NO_STEPS: Mapping[RunId, int] = {}
few = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def event(kind: str, at: float, *, by: str = "j0", under: str = "run", **body: Any) -> EventRow:
    time_ns = START + int(at * SECOND)
    return EventRow(JournalId(by), RunId(under), "host-a", 0, time_ns, None, kind, body)


def ended(at: float = 10, *, status: str = "completed", explicit: bool = False, **more: Any) -> Any:
    return event("run_end", at, status=status, explicit=explicit, **more)


def exited(at: float = 11, *, of: str = "j0", **body: Any) -> EventRow:
    # An agent writes about others: in its own journal, under no run.
    body = {"code": None, "signal": None, **body}
    return event("process_exit", at, by="agent", under="", **body | {"journal": of})


def state_of(*events: EventRow, now: float = 1000, last: float = 10, **more: Any) -> ProcessState:
    (state,) = process_states([process(last=last)], events, START + int(now * SECOND), **more)
    return state


FIRST_WORDS = [
    # (what is known, the state, the reason)
    ([ended(explicit=True)], "completed", ""),
    ([ended(explicit=True), exited(code=1)], "completed", ""),
    ([ended(explicit=True), exited(signal=9)], "completed", ""),
    ([ended(explicit=True, status="failed", reason="diverged")], "failed", "diverged"),
    ([ended(explicit=True, status="failed")], "failed", "said it failed"),
    ([ended(explicit=True, status="killed", reason="preempted")], "killed", "preempted"),
    ([ended(), ended(9, explicit=True, status="failed", reason="nan")], "failed", "nan"),
    ([exited(signal=9)], "killed", "killed by SIGKILL"),
    ([exited(signal="SIGTERM")], "killed", "killed by SIGTERM"),
    ([exited(signal=9, oom=True)], "killed", "killed by SIGKILL, out of memory"),
    ([exited(signal=11, core_dumped=True)], "killed", "killed by SIGSEGV, core dumped"),
    ([exited(signal=200)], "killed", "killed by signal 200"),
    ([exited(signal=4, fault="SIGILL")], "killed", "killed by SIGILL"),
    (
        [exited(signal=11, fault="SIGILL", core_dumped=True)],
        "killed",
        "killed by SIGILL (then SIGSEGV while its stacks were written), core dumped",
    ),
    ([exited(fault="SIGBUS")], "killed", "killed by SIGBUS, as its own stacks say"),
    ([exited(), exited(fault="SIGBUS")], "killed", "killed by SIGBUS, as its own stacks say"),
    ([ended(), exited(signal=9)], "killed", "killed by SIGKILL"),
    ([exited(code=3)], "failed", "exit code 3"),
    ([ended(), exited(code=3)], "failed", "exit code 3"),
    (
        [ended(status="failed", exception="ValueError: no"), exited(code=1)],
        "failed",
        "ValueError: no (exit code 1)",
    ),
    (
        [ended(exception={"type": "ValueError", "message": "no"}), exited(code=0)],
        "failed",
        "ValueError: no (exit code 0)",
    ),
    ([exited(code=0)], "completed", ""),
    ([ended(), exited(code=0)], "completed", ""),
    ([ended()], "completed", UNSEEN),
    ([ended(explicit=True)], "completed", ""),
    ([ended(status="failed", exception="KeyError: 'x'")], "failed", "KeyError: 'x'"),
    (
        [ended(status="killed", exception="KeyboardInterrupt")],
        "killed",
        "interrupted (KeyboardInterrupt)",
    ),
    ([ended(), exited()], "completed", UNSEEN),
    ([exited()], "lost", "ended without a word; cause unknown"),
    ([exited(signal=9), exited(20)], "killed", "killed by SIGKILL"),
    ([exited(5), exited(20, signal=9)], "killed", "killed by SIGKILL"),
    ([], "lost", "silent since 2023-11-14T22:13:30Z"),
]


@pytest.mark.parametrize(("known", "state", "reason"), FIRST_WORDS)
def test_how_a_process_ended(known: list[EventRow], state: str, reason: str) -> None:
    found = state_of(*known)
    assert (found.state, found.reason) == (state, reason)
    assert found.ended_ns is not None


def test_details_of_an_end_are_kept() -> None:
    killed = state_of(exited(11, signal=9, oom=True))
    assert (killed.signal, killed.exit_code, killed.out_of_memory) == ("SIGKILL", None, True)
    assert killed.ended_ns == START + 11 * SECOND
    failed = state_of(ended(10), exited(12, code=7))
    assert (failed.signal, failed.exit_code, failed.ended_ns) == (None, 7, START + 12 * SECOND)
    lost = state_of()
    assert lost.ended_ns == lost.last_ns == START + 10 * SECOND


@pytest.mark.parametrize(
    "known, done",
    [
        ([ended(explicit=True, done=True)], True),
        ([ended(explicit=True, done=False)], False),
        ([ended(explicit=True, done=None)], None),
        ([ended(explicit=True, done="yes")], None),
        ([ended(done=True), exited(code=0)], True),  # it knew how much there was to do
        ([ended(done=False), exited(code=0)], False),
        # Records of before say whether `finish` was called, and nothing else.
        ([ended(explicit=True)], True),
        ([ended()], False),
        ([ended(), exited(code=0)], False),
        # Exit code 0 is no word.
        ([exited(code=0)], False),
        # Who did not end well is not done, whatever it said.
        ([ended(explicit=True, status="failed", done=True)], False),
        ([ended(done=True), exited(code=3)], False),
        ([ended(done=True), exited(signal=9)], False),
        ([], False),
    ],
)
def test_whether_a_process_had_done_all_there_was_to_do(
    known: list[EventRow], done: bool | None
) -> None:
    assert state_of(*known).done is done


@pytest.mark.parametrize(
    ("now", "last", "events", "state"),
    [
        (10, 10, [], "running"),
        (10 + WINDOW, 10, [], "running"),
        (10 + WINDOW + 0.001, 10, [], "lost"),
        (100, 80, [], "running"),
        (100, 69, [], "lost"),
        (5, 10, [], "running"),  # the host's clock is ahead of ours
        # Said goodbye, and was heard of afterwards: an exit handler that takes its time.
        (20, 18, [ended(10)], "running"),
        (100, 18, [ended(10)], "completed"),
        (20, 18, [ended(10), exited(19)], "completed"),
        (20, 15, [ended(10)], "completed"),  # it waits for that to be sent
        (11, 10, [ended(10)], "completed"),
        (11, 10, [ended(9.5)], "completed"),  # a last word about the journal itself
        (20, 18, [ended(10, explicit=True)], "completed"),
    ],
)
def test_who_is_alive(now: float, last: float, events: list[EventRow], state: str) -> None:
    assert state_of(*events, now=now, last=last).state == state


def test_heartbeats_that_somebody_stored_are_ignored() -> None:
    stored = event("heartbeat", 80, by="agent", under="", alive=["j0"])
    assert state_of(stored, now=100) == state_of(now=100)


def test_a_process_seen_alive_now_is_running_however_silent() -> None:
    assert state_of(alive=[JournalId("j0")]).state == "running"
    assert state_of(alive=[JournalId("j1")]).state == "lost"
    assert state_of(exited(code=0), alive=[JournalId("j0")]).state == "completed"


@pytest.mark.parametrize(("imported", "state"), [(True, "completed"), (None, "running")])
def test_a_journal_that_an_import_writes_now_is_no_process_that_lives(
    imported: bool | None, state: str
) -> None:
    began = event("run_start", 0, imported=imported)
    assert state_of(began, ended(), alive=[JournalId("j0")]).state == state


def test_a_process_that_is_known_to_be_gone_is_lost_at_once_unless_more_is_known() -> None:
    gone = [JournalId("j0")]
    found = state_of(now=11, gone=gone)
    assert (found.state, found.reason) == ("lost", "ended without a word; cause unknown")
    assert found.ended_ns == found.last_ns == START + 10 * SECOND
    assert state_of(now=11, gone=[JournalId("j1")]).state == "running"
    assert state_of(exited(signal=9), now=11, gone=gone).state == "killed"
    assert state_of(ended(9), now=11, last=10.5, gone=gone).state == "completed"


def test_the_window_is_a_parameter() -> None:
    assert state_of(now=100, alive_window_s=89).state == "lost"
    assert state_of(now=100, alive_window_s=90).state == "running"


def test_a_program_that_is_heard_of_now_and_then_may_be_silent_that_long() -> None:
    now_and_then = event("run_start", 5, quiet_seconds=150.0)
    assert state_of(now_and_then, now=150, last=10).state == "running"
    assert state_of(now_and_then, now=161, last=10).state == "lost"
    assert state_of(event("run_start", 5), now=150, last=10).state == "lost"
    shorter = event("run_start", 5, quiet_seconds=1.0)
    assert state_of(shorter, now=35, last=10).state == "running", "no shorter than for others"


def test_a_run_opened_again_by_the_same_process_goes_on() -> None:
    first = [event("run_start", 0), ended(5, explicit=True)]
    assert state_of(*first, now=11).state == "completed"
    again = [*first, event("run_start", 6)]
    found = state_of(*again, now=11)
    assert (found.state, found.started_ns) == ("running", START)
    assert state_of(*again, ended(9, explicit=True, status="failed")).state == "failed"


def test_two_runs_of_one_process_end_each_in_its_own_way() -> None:
    rows = [process(run="a"), process(run="b")]
    known = [event("run_end", 5, under="a", status="completed", explicit=True), exited(signal=9)]
    found = process_states(rows, known, START + 1000 * SECOND)
    assert [(p.run, p.state) for p in found] == [("a", "completed"), ("b", "killed")]


def test_agents_and_processes_without_a_run_are_no_part_of_a_run() -> None:
    rows = [process(), process("agent", role="agent"), process("idle", run="")]
    assert [p.journal for p in process_states(rows, [], START)] == ["j0"]


def test_damaged_events_are_ignored() -> None:
    odd = [
        event("process_exit", 5, by="agent", under="", journal=1),
        event("process_exit", 5, by="agent", under="", journal="j0", code=True, signal=0),
        event("run_end", 5, under="other", status="failed", explicit=True),
    ]
    assert state_of(*odd).state == "lost"
    assert state_of(event("run_end", 5, status=3, reason=4, exception=5)).reason == UNSEEN


# ── runs ───────────────────────────────────────────────────────────────────────────────────────


def four(**more: Any) -> list[ProcessRow]:
    return [process(f"j{rank}", rank=rank, host=f"host-{rank // 2}", **more) for rank in range(4)]


def fates(*fate: EventRow | None, last: float = 10, now: float = 1000) -> Any:
    (run,) = runs(four(last=last), [event for event in fate if event], now)
    return run


def runs(
    rows: Sequence[ProcessRow],
    events: Sequence[EventRow],
    now: float,
    last_steps: Mapping[RunId, int] = NO_STEPS,
) -> list[RunSummary]:
    return runs_of(process_states(rows, events, START + int(now * SECOND)), last_steps)


def done(rank: int, at: float = 12) -> EventRow:
    return exited(at, of=f"j{rank}", code=0)


def test_a_run_is_completed_when_all_are() -> None:
    run = fates(*(done(rank, 12 + rank) for rank in range(4)))
    assert (run.state, run.reason, run.ended_ns) == ("completed", "", START + 15 * SECOND)
    assert (run.ranks, run.hosts, run.attempts) == (4, ("host-0", "host-1"), 1)
    assert run.processes == {"completed": 4}
    assert (run.name, run.group, run.last_step) == ("name of run", "", None)


def test_who_ended_first_is_the_cause() -> None:
    run = fates(
        exited(15, of="j0", code=1),
        exited(14, of="j1", code=1),
        exited(13, of="j2", signal=9),
        exited(16, of="j3", code=1),
    )
    assert run.state == "killed"
    assert run.reason == "rank 2 killed by SIGKILL on host host-1 at 2023-11-14T22:13:33Z"
    assert run.ended_ns == START + 16 * SECOND


def test_of_those_found_gone_at_once_the_one_that_may_have_gone_first_is_the_cause() -> None:
    """A busy agent finds them by their numbers: rank 0 fell only because rank 2 was killed."""
    broken = ended(13, status="failed", exception={"type": "EOFError"})
    lived = START + 12 * SECOND
    others = [
        exited(14, of="j0", code=1, lived_ns=lived),
        exited(14.002, of="j1", signal=15, lived_ns=lived),
        exited(14.002, of="j3", signal=15, lived_ns=lived),
    ]
    run = fates(broken, *others, exited(14.001, of="j2", signal=9, lived_ns=lived))
    assert "rank 2 killed by SIGKILL" in run.reason
    later = START + int(13.5 * SECOND)
    run = fates(broken, *others, exited(14.001, of="j2", signal=9, lived_ns=later))
    assert "rank 0 failed: EOFError" in run.reason


def test_a_run_goes_on_while_one_does_and_tells_who_is_gone() -> None:
    run = fates(exited(9, of="j1", code=2), last=10, now=12)
    assert (run.state, run.ended_ns) == ("running", None)
    assert run.reason == (
        "rank 1 failed: exit code 2 on host host-0 at 2023-11-14T22:13:29Z; 3 of 4 still running"
    )
    assert run.processes == {"running": 3, "failed": 1}


def test_a_lost_host_is_named() -> None:
    run = fates(done(0), done(1), done(2))
    assert run.state == "lost"
    assert run.reason.startswith("rank 3 lost: silent since 2023-11-14T22:13:30Z on host host-1")


def test_the_newest_attempt_decides() -> None:
    rows = [*four(), *(process(f"k{r}", rank=r, start=100, last=200) for r in range(4))]
    events = [exited(12, of=f"j{r}", signal=9) for r in range(4)]
    (running,) = runs(rows, events, 210, {RunId("run"): 7})
    assert (running.state, running.attempts, running.last_step) == ("running", 2, 7)
    assert running.started_ns == START
    (history,) = summarise_attempts(process_states(rows, events, START + 210 * SECOND)).values()
    assert [(a.attempt, a.state) for a in history] == [(1, "killed"), (2, "running")]


def test_runs_come_newest_first() -> None:
    rows = [process("a", run="old"), process("b", run="new", start=5)]
    assert [run.run for run in runs(rows, [], 0)] == ["new", "old"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[ProcessRow], list[EventRow]]:
    rows = draw(process_rows())
    kinds = st.sampled_from(["end", "explicit", "code", "signal", "gone", "none"])
    events = []
    for row in rows:
        at = draw(st.integers(8, 60))
        kind = draw(kinds)
        told = {"by": row.journal, "under": row.run, "explicit": kind == "explicit"}
        if kind in ("end", "explicit"):
            status = draw(st.sampled_from(["completed", "failed", "killed"]))
            events.append(event("run_end", at, **told, status=status))
        elif kind in ("code", "signal", "gone"):
            number = draw(st.integers(0, 3))
            body = {kind: number} if kind != "gone" else {}
            events.append(exited(at, of=row.journal, **body))
    return rows, events


@few
@given(histories(), st.integers(0, 200), st.integers(0, 2**32))
def test_states_are_a_function_of_what_is_known(history: Any, now: int, seed: int) -> None:
    rows, events = history
    now_ns = START + now * SECOND
    found = process_states(rows, events, now_ns)
    assert len(found) == len(rows)
    assert all(p.state in STATES for p in found)
    assert all((p.ended_ns is None) == (p.state == "running") for p in found)
    mixed = events * 2
    random.Random(seed).shuffle(mixed)
    assert process_states(rows[::-1], mixed, now_ns) == found


def test_a_process_says_whose_it_is_and_since_when_it_was_wanted() -> None:
    said = event("run_start", 0, user="ada", queued_at_ns=START - 50 * SECOND)
    again = event("run_start", 5, user="bob", queued_at_ns=START)
    state = state_of(said, again)
    assert (state.user, state.queued_at_ns) == ("ada", START - 50 * SECOND)
    for odd in ({}, {"user": 7, "queued_at_ns": True}, {"queued_at_ns": "noon"}):
        state = state_of(event("run_start", 0, **odd))
        assert (state.user, state.queued_at_ns) == ("", None)


def test_a_scheduler_says_since_when_a_job_was_wanted() -> None:
    told: dict[str, Any] = {
        "journal": "j0",
        "queued_at_ns": START - 90 * SECOND,
        "granted_at_ns": START - SECOND,
    }
    events = [event("job_queued", 1, by="agent", **told)]
    events += [event("job_queued", 2, by="agent", **told | {"queued_at_ns": START})]
    for order in (events, events[::-1]):
        state = state_of(event("run_start", 0), *order)
        assert (state.queued_at_ns, state.granted_at_ns) == (START - 90 * SECOND, START - SECOND)
    own = event("run_start", 0, queued_at_ns=START - 50 * SECOND)
    state = state_of(own, *events)
    assert (state.queued_at_ns, state.granted_at_ns) == (START - 50 * SECOND, START - SECOND)
    for odd in ({"journal": 7}, {"journal": "b"}, {"granted_at_ns": "x", "queued_at_ns": None}):
        state = state_of(event("run_start", 0), event("job_queued", 1, by="agent", **told | odd))
        assert (state.queued_at_ns, state.granted_at_ns) == (None, None)


def test_a_run_is_the_newest_users() -> None:
    rows = [process("a"), process("b", start=100, last=110), process("c", start=200, last=210)]
    words = [event("run_start", at, by=by, user=user) for at, by, user in (
        (0, "a", "ada"), (100, "b", "bob"), (200, "c", "")
    )]  # fmt: skip
    [run] = runs(rows, words, 1000)
    assert run.user == "bob"


# ── two jobs of one name ──────────────────────────────────────────────────────────────────────


def two(first_last: float, second_last: float = 100) -> list[ProcessRow]:
    return [process("a", last=first_last), process("b", start=50, last=second_last)]


def test_two_jobs_of_one_name_at_once_are_both_shown_and_it_is_said() -> None:
    [run] = runs(two(100), [], 101)
    assert (run.state, run.attempts, run.reason) == ("running", 2, "")
    [warning] = of_jobs(run)
    assert warning.text == "2 jobs of this name run at once: give one of them another name or id"
    assert warning.time_ns == START + 50 * SECOND
    (history,) = summarise_attempts(process_states(two(100), [], START + 101 * SECOND)).values()
    assert [(a.state, a.reason) for a in history] == [
        ("running", "runs at the same time as attempt 2: give one of them another name or id"),
        ("running", "runs at the same time as attempt 1: give one of them another name or id"),
    ]


@pytest.mark.parametrize("last", [49, 60])
def test_a_restart_is_not_taken_for_a_second_job(last: int) -> None:
    """Nobody saw the first one die: it may be alive for as long as it may be silent."""
    [run] = runs(two(last), [], 70)
    assert (run.state, run.attempts, run.reason) == ("running", 2, "")
    assert of_jobs(run) == []


def test_when_the_newer_of_two_jobs_ends_the_run_goes_on() -> None:
    rows, done = two(100, 80), [event("run_end", 80, by="b", status="completed", explicit=True)]
    [run] = runs(rows, done, 101)
    assert (run.state, run.ended_ns, run.reason, run.jobs) == ("running", None, "", 1)
    states = process_states(rows, done, START + 101 * SECOND)
    assert [state.journal for state in of_last_attempt(states)] == ["a"]
    [run] = runs(rows, [*done, ended(110)], 1000)
    assert (run.state, run.attempts) == ("completed", 2)


def test_a_process_that_went_over_to_another_run_is_only_there() -> None:
    rows = [process("a"), process("a", run="other"), process("b", run="third")]
    gone = event("joined", 5, by="a", under="run")
    gone = replace(gone, body={"run": "other"})
    assert {run.run for run in runs(rows, [gone], 20)} == {"other", "third"}
    rows.append(process("c", rank=1))
    assert {run.run: run.ranks for run in runs(rows, [gone], 20)}[RunId("run")] == 1


def test_a_launcher_may_come_back_to_a_run_that_it_left() -> None:
    """Its command began a run of another name, and then one of the first name again."""
    rows = [process("l", role="launcher"), process("l", role="launcher", run="other")]
    gone = replace(event("joined", 5, by="l", under="run"), body={"run": "other"})
    back = event("run_start", 9, by="l", under="run")
    assert {run.run for run in runs(rows, [gone], 20)} == {"other"}
    assert {run.run for run in runs(rows, [gone, back], 20)} == {"run", "other"}


# ── commands that start ranks ─────────────────────────────────────────────────────────────────


def commanded(*events: EventRow, now: float = 1000, last: float = 40) -> RunSummary:
    rows = [
        process("l", role="launcher", key="exec-1", last=50),
        process("j0", start=5, last=last, key="exec-1"),
        process("j1", start=6, last=last, key="exec-1", rank=1, host="host-b"),
    ]
    [run] = runs(rows, events, now)
    return run


BOTH = (exited(40, of="j0", code=0), exited(40, of="j1", code=0))


def test_a_launcher_is_no_rank() -> None:
    run = commanded(*BOTH, exited(50, of="l", code=0))
    assert (run.state, run.reason, run.ranks, run.hosts) == (
        "completed", "", 2, ("host-a", "host-b"),
    )  # fmt: skip
    assert (run.processes, run.started_ns) == ({"completed": 2}, START)


def test_a_command_that_fails_after_its_ranks_is_a_failure() -> None:
    run = commanded(*BOTH, exited(50, of="l", code=3))
    assert run.state == "failed"
    assert run.reason.startswith("the command failed: exit code 3 on host host-a at ")


def test_a_rank_that_fails_is_why_its_command_does() -> None:
    fate = (exited(40, of="j0", code=0), exited(41, of="j1", signal=9))
    run = commanded(*fate, exited(50, of="l", code=1))
    assert run.state == "killed"
    assert run.reason.startswith("rank 1 killed by SIGKILL on host host-b at ")


@pytest.mark.parametrize(
    ("fate", "words"),
    [
        (BOTH, "the command goes on"),
        ((BOTH[0], exited(40, of="j1", code=2)), "rank 1 failed: exit code 2 on host host-b"),
    ],
)
def test_a_command_that_goes_on_may_start_more(fate: tuple[EventRow, ...], words: str) -> None:
    run = commanded(*fate, now=60)
    assert run.state == "running"
    assert run.reason.startswith(words) and run.reason.endswith("the command goes on")


def test_a_command_without_ranks_stands_as_it_ended() -> None:
    rows = [process("l", role="launcher", key="exec-1", last=50)]
    [run] = runs(rows, [exited(50, of="l", code=127)], 1000)
    assert (run.state, run.ranks, run.processes) == ("failed", 0, {"failed": 1})
    assert run.reason.startswith("the command failed: exit code 127 on host host-a")


@few
@given(histories(), st.integers(0, 200))
def test_a_run_adds_up(history: Any, now: int) -> None:
    rows, events = history
    states = process_states(rows, events, START + now * SECOND)
    for run in runs(rows, events, now):
        of_run = [p for p in states if p.run == run.run]
        going = going_on(of_run)
        current = going[-1] if going else run.attempts
        newest = [p for p in of_run if p.attempt == current]
        assert sum(run.processes.values()) == len(newest)
        assert (run.ended_ns is None) == (run.state == "running")
        assert (run.state == "completed") == all(p.state == "completed" for p in newest)
        assert (run.state == "running") == any(p.state == "running" for p in newest)
        bad = [p for p in newest if p.state in ("failed", "killed", "lost")]
        assert bool(run.reason) == bool(bad)
        assert run.jobs == max(len(going), 1)
        if bad:
            first_ns = min(p.ended_ns or 0 for p in bad)
            firsts = [p for p in bad if p.ended_ns == first_ns]
            assert any(run.reason.startswith(f"rank {p.rank} ") for p in firsts)


@few
@given(histories())
def test_an_end_that_is_known_stays_as_time_goes_by(history: Any) -> None:
    rows, events = history
    early = process_states(rows, events, START + 100 * SECOND)
    late = process_states(rows, events, START + 10_000 * SECOND)
    assert [p for p in early if p.state != "running"] == [
        b for a, b in zip(early, late, strict=True) if a.state != "running"
    ]
    assert all(p.state != "running" for p in late)


# ── programs that put themselves into the background ──────────────────────────────────────────


def forked(by: str, of: str = "j0", *, detached: object = True) -> EventRow:
    return event("fork", 1, by=by, parent_journal=of, parent_pid=100, detached=detached)


def daemon_of(*events: EventRow, last: float = 900, now: float = 901) -> ProcessState:
    """`j0` has ended; `j1` is a child with a session of its own, `j2` a child of that one."""
    rows = [
        process(),
        process("j1", role="child", start=1, last=2),
        process("j2", role="child", start=2, last=last),
    ]
    forks = (forked("j1"), forked("j2", of="j1"))
    (state,) = process_states(rows, (*forks, *events), START + int(now * SECOND))
    return state


@pytest.mark.parametrize("goodbye", [(), (ended(),)])
@pytest.mark.parametrize("code", [0, None])
def test_a_program_in_the_background_is_running_after_its_first_process(
    goodbye: tuple[EventRow, ...], code: int | None
) -> None:
    state = daemon_of(exited(code=code), *goodbye)
    assert (state.state, state.ended_ns) == ("running", None)
    assert state.reason == "it goes on as process 100, in the background"
    assert state.last_ns == START + 900 * SECOND


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([exited(950, of="j2", code=0)], "completed", ""),
        ([exited(950, of="j2", signal=9)], "killed", "killed by SIGKILL"),
        ([exited(950, of="j2", code=3)], "failed", "exit code 3"),
        ([], "lost", "silent since "),
    ],
)
def test_how_it_ended_is_how_what_was_in_the_background_ended(
    events: list[EventRow], state: str, reason: str
) -> None:
    found = daemon_of(exited(code=0), *events, now=1000)
    assert found.state == state and found.reason.startswith(reason)
    assert found.ended_ns is not None and found.ended_ns >= START + 900 * SECOND


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([ended(explicit=True), exited(code=0)], "completed"),
        ([exited(signal=9)], "killed"),
        ([exited(code=1)], "failed"),
    ],
)
def test_a_word_or_a_bad_end_of_its_own_counts(events: list[EventRow], state: str) -> None:
    assert daemon_of(*events).state == state


@pytest.mark.parametrize("detached", [False, None, 1, "yes"])
def test_a_worker_that_is_left_over_is_nobody_s_heir(detached: object) -> None:
    rows = [process(), process("j1", role="child", start=1, last=900)]
    life = [forked("j1", detached=detached), exited(code=0)]
    (state,) = process_states(rows, life, START + 901 * SECOND)
    assert state.state == "completed"


def test_a_ring_of_forks_ends() -> None:
    rows = [process(), *(process(j, role="child", last=900) for j in ("j1", "j2"))]
    life = [forked("j1", of="j2"), forked("j2", of="j1"), exited(code=0)]
    (state,) = process_states(rows, life, START + 901 * SECOND)
    assert state.state == "completed"
