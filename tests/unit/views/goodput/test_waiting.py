"""Waiting for machines and for pods: what it claims, and what it leaves alone."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.record.pods import PodTold
from runwatch.views.goodput.account import mean_time_between_failures_ns
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.explaining import explain
from runwatch.views.goodput.waiting import down_since, machines_of
from runwatch.views.pods import Pods
from runwatch.views.runs import runs_of
from tests.unit.views.goodput.cluster import PodStory, event, seated, told_with
from tests.unit.views.goodput.story import (
    SECOND,
    Notebook,
    goodput_of,
    last_ns,
    rows,
    scribe_for,
    spent,
    told,
)

WAIT, STARTUP, RECOVERY = "scheduling_wait", "pod_startup", "infrastructure_recovery"
PREPARATION = "training_preparation"


def down(at: int = 30, rank: int = 0) -> Notebook:
    return Notebook(rank).steps(0, *range(0, at + 1, 10)).killed(at, "preempted")


def again(start: int, rank: int = 0, *, after: int = 10) -> Notebook:
    begin = start + after
    return Notebook(rank, attempt=2, start=start).steps(3, begin, begin + 10).exits(begin + 10)


def between(told_rows: list[tuple[float, float, str]], start: int, end: int) -> list[object]:
    return [row for row in told_rows if row[0] >= start and row[1] <= end]


# ── between two attempts ───────────────────────────────────────────────────────────────────────


def test_a_preempted_run_waits_for_a_node_and_then_for_its_image() -> None:
    old, new = PodStory("a", -20, -15, -5, 30), PodStory("b", 35, 400, 460, said="no room")
    goodput = told_with([down(), again(470)], [old, new])
    assert between(rows(goodput), 30, 480) == [
        (30, 35, RECOVERY), (35, 400, WAIT), (400, 460, STARTUP), (460, 470, RECOVERY),
        (470, 480, PREPARATION),
    ]  # fmt: skip
    (disruption,) = goodput.disruptions
    assert disruption.recovery_ns == 440 * SECOND
    assert goodput.account().total_ns == 490 * SECOND
    assert mean_time_between_failures_ns(goodput) == 50 * SECOND


def test_without_pods_the_same_run_only_recovers() -> None:
    books = [down(), again(470)]
    plain = told(*books)
    assert between(rows(plain), 30, 470) == [(30, 470, RECOVERY)]
    assert rows(told_with(books)) == rows(plain)
    assert told_with(books).inferred_ns == plain.inferred_ns


def test_a_gang_waits_until_its_last_pod_has_a_node() -> None:
    books = [down(), down(rank=1), again(300), again(305, rank=1, after=5)]
    pods = [PodStory("c", 31, 40, 60), PodStory("d", 33, 250, 290)]
    seats = {books[2].journal: "c", books[3].journal: "d"}
    assert between(rows(told_with(books, pods, seats)), 30, 300) == [
        (30, 31, RECOVERY), (31, 250, WAIT), (250, 290, STARTUP), (290, 300, RECOVERY),
    ]  # fmt: skip


def test_pods_that_come_one_after_the_other_are_each_waited_for() -> None:
    books = [down(), again(100), again(100, rank=1)]
    pods = [PodStory("c", 35, 40, 55), PodStory("d", 60, 70, 95)]
    seats = {books[1].journal: "c", books[2].journal: "d"}
    assert between(rows(told_with(books, pods, seats)), 30, 100) == [
        (30, 35, RECOVERY), (35, 40, WAIT), (40, 55, STARTUP), (55, 60, RECOVERY), (60, 70, WAIT),
        (70, 95, STARTUP), (95, 100, RECOVERY),
    ]  # fmt: skip


def test_pods_that_were_given_up_before_the_attempt_began_were_waited_for_too() -> None:
    books = [down(), again(300)]
    pods = [PodStory("x", 40, gone=100), PodStory("b", 110, 200, 250)]
    goodput = told_with(books, pods, {books[1].journal: "b"})
    assert between(rows(goodput), 30, 300) == [
        (30, 40, RECOVERY), (40, 100, WAIT), (100, 110, RECOVERY), (110, 200, WAIT),
        (200, 250, STARTUP), (250, 300, RECOVERY),
    ]  # fmt: skip


def test_a_job_that_is_queued_again_waits_to_be_scheduled() -> None:
    goodput = told_with([down(), again(300)], queues={1: (-50, 0), 2: (40, 280)})
    assert between(rows(goodput), 30, 300) == [
        (30, 40, RECOVERY), (40, 280, WAIT), (280, 300, RECOVERY),
    ]  # fmt: skip
    unsaid = told_with([down(), again(300)], queues={2: (40, None)})
    assert between(rows(unsaid), 30, 300) == [(30, 40, RECOVERY), (40, 300, WAIT)]


def test_a_queue_that_holds_pods_back_comes_before_them() -> None:
    """Its scheduler counts until the container started; from its creation on the pod says more."""
    books = [down(), again(300)]
    goodput = told_with(
        books, [PodStory("b", 200, 210, 290)], {books[1].journal: "b"}, queues={2: (40, 290)}
    )
    assert between(rows(goodput), 30, 300) == [
        (30, 40, RECOVERY), (40, 210, WAIT), (210, 290, STARTUP), (290, 300, RECOVERY),
    ]  # fmt: skip


@pytest.mark.parametrize("queue", [(-100, -90), (-100, None), (0, None), (None, None)])
def test_a_restart_within_its_job_waits_for_no_scheduler(queue: tuple[int, int | None]) -> None:
    queues = {} if queue[0] is None else {1: queue, 2: queue}
    goodput = told_with([down(), again(300)], queues=queues)
    assert between(rows(goodput), 30, 300) == [(30, 300, RECOVERY)]


def test_a_job_that_was_in_the_queue_before_the_failure_waits_from_the_failure_on() -> None:
    goodput = told_with([down(), again(300)], queues={2: (10, 200)})
    assert rows(goodput)[:3] == [
        (0, 30, "productive"), (30, 200, WAIT), (200, 300, RECOVERY),
    ]  # fmt: skip


def test_the_time_between_two_complete_jobs_is_nobodys_wait() -> None:
    done = Notebook().steps(0, 0, 10, 20, 30).exits(30)
    after = Notebook(attempt=2, start=300).steps(0, 310, 320).exits(320)
    pods = [PodStory("a", -9, -8, -1), PodStory("b", 100, 200, 290)]
    assert between(rows(told_with([done, after], pods)), 30, 310) == [
        (30, 300, "excluded"), (300, 310, PREPARATION),
    ]  # fmt: skip


# ── before an attempt's first step ─────────────────────────────────────────────────────────────


def test_ranks_that_are_there_wait_for_a_pod_without_a_node() -> None:
    early = Notebook(0).span("accelerator_init", 5, 190).steps(0, 191, 200, 210)
    late = Notebook(1, start=180).steps(0, 190, 200, 210)
    pods = [PodStory("a", -50, -40, -2), PodStory("b", -50, 100, 170)]
    goodput = told_with([early.exits(210), late.exits(210)], pods, world_size=2)
    assert rows(goodput)[:2] == [(0, 100, WAIT), (100, 170, STARTUP)]
    assert goodput.account().total_ns == 210 * SECOND


def test_while_ranks_are_missing_any_new_pod_may_be_theirs() -> None:
    early = Notebook(0).span("accelerator_init", 5)
    pods = [PodStory("a", -50, -40, -2), PodStory("b", -50, said="0/3 nodes are available")]
    goodput = told_with([early], pods, now=100, world_size=2)
    assert rows(goodput) == [(0, 100, WAIT)]
    alone = told_with([early], pods, now=100, world_size=1)
    assert WAIT not in spent(alone)


def test_a_first_step_that_waits_for_a_rank_waits_for_its_node() -> None:
    """Rank 0 is in the first step's collective; rank 1 has no node yet."""
    early = Notebook(0).step(0, 5)
    pods = [PodStory("a", -50, -40, -2), PodStory("b", -50)]
    goodput = told_with([early], pods, now=100, world_size=2)
    assert rows(goodput) == [(0, 100, WAIT)]
    late = Notebook(1, start=90).step(0, 95)
    both = told_with([early, late], [pods[0], PodStory("b", -50, 70, 85)], now=100, world_size=2)
    assert rows(both)[:2] == [(0, 70, WAIT), (70, 85, STARTUP)]


def test_while_others_hang_on_a_dead_rank_its_next_pod_is_waited_for() -> None:
    """They live until their collective times out; the attempt was over when the rank died."""
    dead = down(30, rank=1)
    hung = Notebook(0).steps(0, 0, 10, 20, 30).step(3, 30)
    pods = [PodStory("a", -9, -8, -1), PodStory("b", -9, -8, -1, 30), PodStory("c", 35)]
    seats = {hung.journal: "a", dead.journal: "b"}
    now = told_with([hung, dead], pods, seats, now=500, world_size=2)
    assert between(rows(now), 30, 500) == [(30, 35, RECOVERY), (35, 500, WAIT)]
    hung.killed(600)
    books = [hung, dead, again(700), again(700, rank=1)]
    pods[2:] = [PodStory("c", 35, 550, 560), PodStory("d", 605, 650, 690)]
    seats |= {books[2].journal: "d", books[3].journal: "c"}
    assert between(rows(told_with(books, pods, seats, world_size=2)), 30, 700) == [
        (30, 35, RECOVERY), (35, 550, WAIT), (550, 560, STARTUP), (560, 605, RECOVERY),
        (605, 650, WAIT), (650, 690, STARTUP), (690, 700, RECOVERY),
    ]  # fmt: skip


def test_nothing_before_the_first_process_is_the_runs() -> None:
    book = Notebook().steps(0, 10, 20).exits(20)
    goodput = told_with([book], [PodStory("a", -500, -100, -5)])
    assert goodput.start_ns == 0
    assert rows(goodput) == [(0, 10, PREPARATION), (10, 20, "productive")]


# ── a run whose pods wait now ──────────────────────────────────────────────────────────────────


def test_a_run_whose_next_pods_wait_goes_on_until_now() -> None:
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("b", 40, said="0/8 nodes are available")]
    goodput = told_with([down()], pods, now=1000)
    assert between(rows(goodput), 30, 1000) == [(30, 40, RECOVERY), (40, 1000, WAIT)]
    assert goodput.live
    assert goodput.disruptions[0].recovery_ns is None
    why = explain(goodput, 500 * SECOND)
    assert why is not None
    assert why.why[:2] == (
        "The run waited for machines: pod b.", "The cluster said: 0/8 nodes are available.",
    )  # fmt: skip
    pulls = told_with([down()], [pods[0], PodStory("b", 40, 900)], now=1000)
    assert between(rows(pulls), 30, 1000) == [
        (30, 40, RECOVERY), (40, 900, WAIT), (900, 1000, STARTUP),
    ]  # fmt: skip


def test_who_was_sent_away_and_ended_well_may_come_again_too() -> None:
    left = Notebook().steps(0, 0, 10, 20, 30).exits(30)
    left.said_done = None
    goodput = told_with([left], [PodStory("a", -9, -8, -1, 30), PodStory("b", 40)], now=100)
    assert between(rows(goodput), 30, 100) == [(30, 40, RECOVERY), (40, 100, WAIT)]
    assert goodput.live and len(goodput.disruptions) == 1
    left.said_done = True
    done = told_with([left], [PodStory("a", -9, -8, -1, 30), PodStory("b", 40)], now=100)
    assert (done.end_ns, done.live, done.disruptions) == (30 * SECOND, False, [])


def test_pods_that_were_given_up_end_the_wait() -> None:
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("b", 40, gone=200)]
    goodput = told_with([down()], pods, now=1000)
    assert between(rows(goodput), 30, 1000) == [(30, 40, RECOVERY), (40, 200, WAIT)]
    assert not goodput.live


def test_a_pod_that_runs_something_else_does_not_keep_a_run_going() -> None:
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("board", 40, 50, 60)]
    early = told_with([down()], pods, now=300)
    assert (early.end_ns, early.live) == (300 * SECOND, True)  # its program may still import
    late = told_with([down()], pods, now=100_000)
    assert (late.end_ns, late.live) == (660 * SECOND, False)


def test_the_past_stays_when_the_next_attempt_begins() -> None:
    books, pods = [down(), again(470)], [PodStory("a"), PodStory("b", 35, 400, 460)]
    before = told_with(books[:1], pods, {books[0].journal: "a"}, now=465)
    after = told_with(books, pods)
    assert rows(before)[:-1] == rows(after)[: len(rows(before)) - 1]


def test_why_a_run_waits_is_said_while_its_work_is_not_done() -> None:
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("b", 40, said="0/8 nodes are available")]
    told_pods = Pods([each for pod in pods for each in pod.events()])
    left = Notebook().steps(0, 0, 10, 20, 30).exits(30)
    for done, waits in (
        (None, "pod b: waiting for a node: 0/8 nodes are available"), (True, ""),
    ):  # fmt: skip
        left.said_done = done
        (run,) = runs_of(seated([left], {left.journal: "a"}, 99 * SECOND), {}, told_pods)
        assert (run.state, run.waits) == ("completed", waits)


def test_a_run_is_down_when_its_last_ranks_are() -> None:
    first, second = down(), Notebook(0, attempt=2, start=60).steps(3, 70, 80)
    assert down_since(seated([first], {}, 99 * SECOND)) == 30 * SECOND
    assert down_since(seated([first, second], {}, 99 * SECOND)) is None
    assert down_since([]) is None
    done = Notebook().steps(0, 0, 10).exits(30)
    assert down_since(seated([done], {}, 99 * SECOND)) is None


# ── healthy look-alikes ────────────────────────────────────────────────────────────────────────


def test_a_slow_restart_in_pods_that_are_there_is_no_wait() -> None:
    """The pod was there before the failure; its container was started again."""
    books = [down(), again(470)]
    seats = {book.journal: "a" for book in books}
    restarted = PodTold(pod="a", uid="a", what="started", container="train", restarts=1)
    goodput = told_with(books, [PodStory("a", -50, -40, -2)], seats)
    assert between(rows(goodput), 30, 470) == [(30, 470, RECOVERY)]
    pods = Pods([*PodStory("a", -50, -40, -2).events(), event(400, restarted)])
    scribe = scribe_for(books)
    for book in books:
        scribe.batch(book.batch())
    scribe.ledger.settle()
    states = seated(books, seats, last_ns(books))
    machines = machines_of(states, pods)
    drawn = draw_up(scribe.ledger, scribe.lives(states), last_ns(books), machines)
    assert drawn is not None and rows(drawn) == rows(goodput)


def test_a_pod_that_waits_while_the_run_trains_claims_nothing() -> None:
    books = [down(), again(60)]
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("b", 31, 32, 33), PodStory("spare", 35)]
    plain = told_with(books, pods[:2])
    assert rows(told_with(books, pods)) == rows(plain)
    assert rows(told_with(books, [*pods[:2], PodStory("spare", 35, 500)], now=900)) == rows(plain)


def test_pods_that_no_process_is_in_say_nothing_of_the_run() -> None:
    books = [down(), Notebook(0, attempt=2, start=60)]
    plain = told_with(books, now=200, world_size=2)
    pods = [PodStory("x", 31, 50, 55), PodStory("y", 31)]
    assert rows(told_with(books, pods, {}, now=200, world_size=2)) == rows(plain)


def test_a_rank_that_joins_a_training_run_held_nobody_up() -> None:
    first = Notebook(0).steps(0, *range(0, 210, 10)).exits(200)
    joins = Notebook(1, start=105).steps(11, *range(110, 210, 10)).exits(200)
    pods = [PodStory("a", -9, -8, -1), PodStory("b", 20, 90, 100)]
    found = spent(told_with([first, joins], pods, world_size=2))
    assert WAIT not in found and STARTUP not in found


@pytest.mark.parametrize("apart", [-4, -1, 0, 1, 4])
def test_clocks_that_are_apart_make_no_wait_of_a_quick_restart(apart: int) -> None:
    """The pod has its node and starts within the second; the cluster's clock is not the nodes'."""
    books = [down(), again(36)]
    pods = [PodStory("a", -9, -8, -1, 30), PodStory("b", 33 + apart, 33 + apart, 34 + apart)]
    found = spent(told_with(books, pods))
    assert found.get(WAIT, 0) == 0
    assert found.get(STARTUP, 0) <= 1
    assert sum(found.values()) == 56


@pytest.mark.parametrize("apart", [-4, 4])
def test_clocks_that_are_apart_move_a_wait_by_no_more(apart: int) -> None:
    pods = [PodStory("a"), PodStory("b", 35 + apart, 400 + apart, 460 + apart)]
    found = spent(told_with([down(), again(470)], pods))
    assert abs(found[WAIT] - 365) <= 4 and abs(found[STARTUP] - 60) <= 4


def test_a_process_shows_that_its_pod_has_started() -> None:
    """Nobody told that it did: an operator that came late, or a clock that is ahead."""
    goodput = told_with([down(), again(100)], [PodStory("a"), PodStory("b", 40, 60)])
    assert between(rows(goodput), 30, 110) == [
        (30, 40, RECOVERY), (40, 60, WAIT), (60, 100, STARTUP), (100, 110, PREPARATION),
    ]  # fmt: skip


# ── whatever is told, in whatever order ────────────────────────────────────────────────────────

_time = st.one_of(st.none(), st.integers(-50, 700))
_pods = st.lists(st.builds(PodStory, st.just(""), _time, _time, _time, _time), max_size=6)


@given(_pods, st.integers(30, 300), st.integers(0, 300), st.integers(1, 5), st.randoms())
def test_every_instant_has_one_class_whatever_pods_do(
    told_pods: list[PodStory], start: int, now: int, world: int, dice: Random
) -> None:
    books = [down(), down(rank=1), again(start), again(start + 7, rank=1)]
    pods = [pod._replace(uid=f"pod-{at}") for at, pod in enumerate(told_pods)]
    seats = {book.journal: f"pod-{dice.randrange(7)}" for book in books}
    now_ns = (30 + now) * SECOND
    scribe = scribe_for(books)
    for book in books:
        scribe.batch(book.batch())
    scribe.ledger.settle()
    plain = goodput_of(scribe, books, now_ns)
    states = seated(books, seats, now_ns, world_size=world)
    events = [each for pod in pods for each in pod.events()]
    machines = machines_of(states, Pods(events))
    goodput = draw_up(scribe.ledger, scribe.lives(states), now_ns, machines)
    assert goodput is not None and plain is not None
    intervals = list(goodput.intervals())
    assert intervals[0][0] == goodput.start_ns and intervals[-1][1] == goodput.end_ns
    assert all(a[1] == b[0] for a, b in zip(intervals, intervals[1:], strict=False))
    sums: dict[str, int] = {}
    for begin, end, name in intervals:
        sums[name] = sums.get(name, 0) + end - begin
    assert sums == {name: ns for name, ns in goodput.account().spent_ns.items() if ns}
    assert goodput.account().spent_ns["productive"] == plain.account().spent_ns["productive"]
    dice.shuffle(events)
    other = machines_of(states, Pods([*events, *events[: len(events) // 2]]))
    anew = draw_up(scribe.ledger, scribe.lives(states), now_ns, other)
    assert anew is not None and list(anew.intervals()) == intervals
