"""Progress, read from batches as they are stored."""

from __future__ import annotations

from dataclasses import replace

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    START,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.views.diagnosis.following import Follower
from runwatch.views.life import State
from runwatch.views.runs import ProcessState

SECOND = 1_000_000_000
ZERO = 1_700_000_000 * SECOND
RUN = RunId("r")
STEP, SAVE, LOSS, BEGAN = 1, 2, 1, 2
DEFINITIONS: list[Definition] = [
    RunScope(1, RUN, "r"),
    SpanName(STEP, "step", 1),
    SpanName(SAVE, "checkpoint_save", 1),
    Series(LOSS, "loss", 1),
]


def state(rank: int, attempt: int = 1, how: State = "running", signal: str = "") -> ProcessState:
    ended = None if how == "running" else ZERO + 100 * SECOND
    return ProcessState(
        JournalId(f"j{rank}"), RUN, "r", "", "host", 1, rank, 2, attempt, how, "", ZERO, ended,
        ZERO, signal=signal or None,
    )  # fmt: skip


def batch(rank: int, definitions: list[Definition] | None = None) -> Batch:
    origin = Origin(JournalId(f"j{rank}"), "host", 1, ZERO)
    return Batch(origin, START, START, list(DEFINITIONS if definitions is None else definitions))


def steps(rank: int, count: int, offset_ns: int = 0) -> Batch:
    found = batch(rank)
    for step in range(count):
        begin = ZERO + step * SECOND - offset_ns
        found.spans.append(STEP, step, BEGIN, begin, step)
        found.spans.append(STEP, step, END, begin + SECOND, step)
    return found


def following(*ranks: int) -> Follower:
    follower = Follower(RUN)
    for rank in ranks:
        follower.enter(state(rank))
    return follower


def stalled_after(follower: Follower, since_ns: int) -> int | None:
    for seconds in range(1000):
        if follower.progress.verdict(since_ns + seconds * SECOND) is not None:
            return seconds
    return None


def test_steps_of_batches_are_progress() -> None:
    follower = following(0, 1)
    for rank in (0, 1):
        follower.batch(steps(rank, 20))
    assert follower.progress.last_step(0) == 19
    assert stalled_after(follower, ZERO + 20 * SECOND) == 11


def test_a_batch_may_end_inside_a_step() -> None:
    follower = following(0)
    whole = steps(0, 20)
    for at in range(len(whole.spans)):
        part = batch(0)
        spans = whole.spans
        part.spans.append(spans.name[at], spans.span[at], spans.edge[at], spans.time_ns[at],
                          spans.step[at])  # fmt: skip
        follower.batch(part)
    assert follower.progress.last_step(0) == 19
    assert follower.progress.open_spans(0) == {}


def test_the_clock_of_a_host_is_corrected() -> None:
    follower = Follower(RUN)
    ahead = 3600 * SECOND
    follower.enter(replace(state(0), started_ns=ZERO - ahead), offset_ns=ahead)
    follower.batch(steps(0, 20, offset_ns=ahead))
    assert follower.progress.since_ns(0) == ZERO + 20 * SECOND


def test_spans_and_stretches_excuse() -> None:
    follower = following(0)
    follower.batch(steps(0, 20))
    saving = batch(0)
    saving.spans.append(SAVE, 99, BEGIN, ZERO + 20 * SECOND, 20)
    follower.batch(saving)
    assert stalled_after(follower, ZERO + 20 * SECOND) == 601
    assert follower.progress.open_spans(0) == {"checkpoint_save": ZERO + 20 * SECOND}
    told = batch(0)
    told.spans.append(SAVE, 99, END, ZERO + 25 * SECOND, 20)
    told.events.append(
        Event(ZERO + 90 * SECOND, "elapsed", {"name": "compile", "seconds": 60.0}, 20, 1)
    )
    told.events.append(Event(ZERO + 91 * SECOND, "elapsed", {"name": 3}, 20, 1))
    follower.batch(told)
    assert stalled_after(follower, ZERO + 90 * SECOND) == 11


def test_of_a_process_that_tells_no_steps_its_points_do() -> None:
    follower = following(0)
    for step in range(20):
        points = batch(0)
        points.points.append(LOSS, ZERO + step * SECOND, step, 1.0)
        points.points.append(LOSS, ZERO + step * SECOND, NO_STEP, 1.0)
        follower.batch(points)
    assert follower.progress.last_step(0) == 18
    assert stalled_after(follower, ZERO + 19 * SECOND) == 11


def test_entries_of_the_goodput_recorder() -> None:
    definitions: list[Definition] = [
        RunScope(1, RUN, "r"),
        Series(BEGAN, "goodput.step_start_time", 1),
        Series(3, "goodput.tpu_init_start_time", 1),
        Series(4, "goodput.tpu_init_end_time", 1),
        Series(5, "goodput.job_start_time", 1),
    ]
    follower = following(0)
    found = batch(0, definitions)
    found.points.append(5, ZERO, NO_STEP, 0.0)
    found.points.append(3, ZERO, NO_STEP, 0.0)
    follower.batch(found)
    assert list(follower.progress.open_spans(0)) == ["accelerator_init"]
    rest = batch(0, definitions)
    rest.points.append(4, ZERO + SECOND, NO_STEP, 0.0)
    for step in range(20):
        rest.points.append(BEGAN, ZERO + (step + 2) * SECOND, step, 0.0)
    follower.batch(rest)
    assert follower.progress.last_step(0) == 18
    assert stalled_after(follower, ZERO + 21 * SECOND) == 11


def test_what_is_not_the_runs_is_passed_over() -> None:
    follower = following(0)
    follower.batch(steps(7, 20))
    other = steps(0, 20)
    other.definitions[0] = RunScope(1, RunId("another"), "another")
    follower.batch(other)
    assert follower.progress.ranks() == [0]
    assert follower.progress.last_step(0) is None


def test_ends_and_heartbeats() -> None:
    follower = following(0, 1)
    for rank in (0, 1):
        follower.batch(steps(rank, 20))
    follower.enter(state(1, how="killed", signal="SIGKILL"))
    ended = follower.progress.ended(1)
    assert ended is not None and ended.signal == "SIGKILL" and not ended.ok
    follower.heartbeat(JournalId("j0"), ZERO + 30 * SECOND)
    follower.heartbeat(JournalId("unknown"), ZERO)
    stall = follower.progress.verdict(ZERO + 40 * SECOND)
    assert stall is not None and stall.ranks == (0,)
    assert follower.progress.verdict(ZERO + 100 * SECOND) is None, "out of reach"


def test_of_a_backlog_the_last_steps_count_and_spans_are_kept() -> None:
    follower = following(0)
    follower.batch(steps(0, 10))
    backlog = batch(0)
    backlog.spans.append(SAVE, 7, BEGIN, ZERO + 10 * SECOND, 10)
    for step in range(10, 2000):
        begin = ZERO + step * SECOND
        backlog.spans.append(STEP, step, BEGIN, begin, step)
        backlog.spans.append(STEP, step, END, begin + SECOND, step)
    follower.batch(backlog)
    progress = follower.progress
    assert progress.last_step(0) == 1999
    assert progress.usual_ns() == SECOND  # what was left out is no long step
    assert progress.limit_ns() == 10 * SECOND
    assert "checkpoint_save" in progress.open_spans(0)
