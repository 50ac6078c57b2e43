"""What a cluster told of the pods of a run, folded: in any order, however often it was told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.record import JournalId, RunId
from runwatch.record.pods import WORDS, PodTold, What
from runwatch.rows import EventRow
from runwatch.views.pods import Pod, Pods, trouble

SECOND = 10**9
T0 = 1_780_000_000 * SECOND


def at(seconds: float) -> int:
    return T0 + int(seconds * SECOND)


def row(seconds: float, what: What, *, uid: str = "u", **more: Any) -> EventRow:
    told = PodTold(pod=f"pod-{uid}", namespace="team", uid=uid, what=what, **more)
    return EventRow(
        JournalId("operator"), RunId("r"), "op", -1, at(seconds), None, told.KIND, told.body()
    )


def started(seconds: float, **more: Any) -> EventRow:
    return row(seconds, "started", **{"container": "train", **more})


def ended(seconds: float, code: int = 0, **more: Any) -> EventRow:
    return row(seconds, "container_ended", **{"container": "train", "exit_code": code, **more})


def folded(*rows: EventRow) -> Pod:
    (pod,) = Pods(rows)
    return pod


BEGUN = [row(0, "created"), row(60, "scheduled", node="node-1"), started(90)]
OOM = row(200, "oom_killed", container="train", exit_code=137, reason="OOMKilled")


# ── order and doubles ─────────────────────────────────────────────────────────────────────────


@st.composite
def stories(draw: st.DrawFn) -> tuple[Sequence[EventRow], Sequence[EventRow]]:
    """The same in another order, some of it more than once."""
    told = st.builds(
        row,
        st.integers(0, 40).map(lambda ten: ten * 10),
        st.sampled_from(WORDS),
        uid=st.sampled_from(["u", "v"]),
        container=st.sampled_from(["train", "proxy"]),
        restarts=st.integers(0, 2),
        reason=st.sampled_from(["", "Error", "ImagePullBackOff", "Succeeded"]),
        message=st.sampled_from(["", "a", "b"]),
        exit_code=st.sampled_from([None, 0, 1, 137]),
        node=st.sampled_from(["", "n1", "n2"]),
    )
    rows = draw(st.lists(told, min_size=1, max_size=14))
    again = draw(st.lists(st.sampled_from(rows), max_size=5))
    return rows, draw(st.permutations([*rows, *again]))


@settings(max_examples=150, deadline=None)
@given(stories(), st.integers(0, 400), st.integers(0, 400))
def test_neither_order_nor_doubles_change_anything(
    story: tuple[Sequence[EventRow], Sequence[EventRow]], start: int, last: int
) -> None:
    def seen(rows: Sequence[EventRow]) -> dict[str, Any]:
        return {
            pod.uid: (
                pod,
                pod.phase(),
                pod.ended(),
                pod.trouble(),
                pod.waiting(at(300)),
                pod.starting(at(300)),
                [pod.end_of(name, at(start), at(last)) for name in ("train", "proxy", "")],
            )
            for pod in Pods(rows)
        }

    assert seen(story[0]) == seen(story[1])


@settings(max_examples=100, deadline=None)
@given(stories())
def test_waiting_and_starting_follow_each_other_and_never_end_before_they_begin(
    story: tuple[Sequence[EventRow], Sequence[EventRow]],
) -> None:
    for pod in Pods(story[0]):
        ranges = [pod.waiting(at(500)), pod.starting(at(500))]
        for found in ranges:
            assert found is None or found[0] < found[1] <= at(500)
        if ranges[0] and ranges[1]:
            assert ranges[0][1] <= ranges[1][0]


# ── its way to a running container ────────────────────────────────────────────────────────────


def test_a_pod_waits_for_a_node_and_then_for_its_containers() -> None:
    pod = folded(*BEGUN)
    assert pod.waiting(at(500)) == (at(0), at(60))
    assert pod.starting(at(500)) == (at(60), at(90))
    assert (pod.phase(), pod.node) == ("running", "node-1")


def test_a_pod_that_still_waits_waits_until_now() -> None:
    pod = folded(row(0, "created"))
    assert (pod.waiting(at(30)), pod.starting(at(30)), pod.phase()) == (
        (at(0), at(30)), None, "waiting",
    )  # fmt: skip


def test_a_pod_deleted_while_it_waited_waited_until_then() -> None:
    pod = folded(row(0, "created"), row(40, "deleted"))
    assert (pod.waiting(at(500)), pod.phase()) == ((at(0), at(40)), "ended")


def test_who_saw_only_the_pull_knows_that_it_had_a_node() -> None:
    pod = folded(row(0, "created"), row(20, "pulling", container="train"), started(90))
    assert (pod.waiting(at(500)), pod.starting(at(500))) == ((at(0), at(20)), (at(20), at(90)))


def test_all_its_containers_are_waited_for() -> None:
    pod = folded(*BEGUN, started(120, container="second"))
    assert pod.starting(at(500)) == (at(60), at(120))


# ── what keeps it from running ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "rows, words",
    [
        ([row(5, "unschedulable", message="no GPU")], "waiting for a node: no GPU"),
        (
            [row(5, "unschedulable", message="no GPU"), row(9, "unschedulable", message="no CPU")],
            "waiting for a node: no CPU",
        ),
        ([], ""),
        ([row(5, "unschedulable", message="no GPU"), row(9, "scheduled")], ""),
        (
            [row(9, "scheduled"), row(9, "pull_failed", reason="ErrImagePull", message="gone")],
            "cannot get its image: gone",
        ),
        (
            [
                row(9, "scheduled"),
                row(12, "pull_failed", reason="ErrImagePull", message="gone"),
                row(30, "pull_failed", reason="ImagePullBackOff", message="Back-off pulling"),
            ],
            "cannot get its image: gone",
        ),
        ([row(9, "scheduled"), row(10, "pulling")], ""),
        ([row(9, "scheduled"), row(10, "pulling"), row(20, "pull_failed"), started(40)], ""),
        ([row(9, "scheduled"), row(20, "pull_failed", message="x"), row(30, "pulling")], ""),
        ([row(9, "scheduled"), started(10), ended(20, 1), started(21, restarts=1)], ""),
        (
            [row(9, "scheduled"), started(10), ended(20, 1, restarts=2)],
            "container train ends again and again, the last time with exit code 1",
        ),
        (
            [row(9, "scheduled"), started(10), ended(20, 1, restarts=2), row(30, "ended")],
            "",
        ),
    ],
)
def test_trouble(rows: Sequence[EventRow], words: str) -> None:
    assert folded(row(0, "created"), *rows).trouble() == words


def test_the_trouble_of_most_pods_is_said_once() -> None:
    no_gpu = [row(5, "unschedulable", uid=uid, message="no GPU") for uid in "abc"]
    made = [row(0, "created", uid=uid) for uid in "abcd"]
    pods = Pods([*made, *no_gpu, row(5, "unschedulable", uid="d", message="no CPU")])
    assert trouble(pods) == "pod pod-a and 2 more: waiting for a node: no GPU"
    assert trouble([]) == ""


# ── how a process in it ended ─────────────────────────────────────────────────────────────────


def end(*rows: EventRow, container: str = "train", start: float = 100, last: float = 195) -> Any:
    found = folded(*BEGUN, *rows).end_of(container, at(start), at(last))
    return found and (found.how, found.exit_code, found.signal, found.out_of_memory, found.why)


@pytest.mark.parametrize(
    "rows, expected",
    [
        ([], None),
        ([ended(200)], ("", 0, None, False, "")),
        ([ended(200, 1)], ("", 1, None, False, "")),
        ([ended(200, 137)], ("", 137, 9, False, "")),
        ([OOM], ("", 137, 9, True, "")),
        ([OOM, row(205, "evicted", message="x")], ("", 137, 9, True, "")),
        (
            [row(198, "evicted", message="low"), ended(200, 137)],
            ("evicted", 137, 9, False, "low"),
        ),
        (
            [row(190, "preempted", reason="P"), ended(200, 143)],
            ("preempted", 143, 15, False, "P"),
        ),
        ([row(190, "deleted"), ended(200, 143)], ("deleted", 143, 15, False, "")),
        # Who ended by itself is cleared away then.
        ([ended(200, 1), row(202, "deleted")], ("", 1, None, False, "")),
        ([ended(200), row(202, "deleted"), row(202, "ended")], ("", 0, None, False, "")),
        ([ended(200), row(900, "deleted")], ("", 0, None, False, "")),
        # Nobody told of its container's end.
        ([row(200, "deleted")], ("deleted", None, None, False, "")),
        ([row(200, "ended", reason="Succeeded")], ("completed", None, None, False, "")),
        ([row(200, "ended", reason="Failed")], ("failed", None, None, False, "")),
        ([row(200, "ended", reason="OutOfcpu")], ("failed", None, None, False, "OutOfcpu")),
        ([row(900, "deleted")], None),
        ([row(240, "node_not_ready", message="silent")], None),
        (
            [row(240, "node_not_ready", message="silent"), row(540, "evicted")],
            ("node_lost", None, None, False, "silent"),
        ),
        # The node was away before, and is again not to blame.
        (
            [
                row(120, "node_not_ready", message="silent"),
                row(130, "node_ready"),
                row(200, "deleted"),
            ],
            ("deleted", None, None, False, ""),
        ),
    ],
)
def test_how_a_process_ended(rows: Sequence[EventRow], expected: Any) -> None:
    assert end(*rows) == expected


def test_a_process_that_was_heard_of_after_its_container_s_end_was_another() -> None:
    assert end(ended(200, 1), last=300) is None


def test_a_process_of_a_later_life_did_not_end_in_an_earlier_one() -> None:
    lives = [ended(200, 1), started(210, restarts=1), ended(400, 3, restarts=1)]
    assert end(*lives) == ("", 1, None, False, "")
    assert end(*lives, start=215, last=398) == ("", 3, None, False, "")


def test_a_process_that_does_not_say_its_container_did_not_run_in_the_sidecar() -> None:
    sidecar = row(210, "container_ended", container="proxy", exit_code=137)
    assert end(sidecar, container="") is None
    assert end(sidecar, ended(200, 3), container="") == ("", 3, None, False, "")


def test_of_two_containers_of_which_one_goes_on_nobody_knows_which_it_was() -> None:
    second = started(95, container="second")
    assert end(second, ended(200, 1), container="") is None
    assert end(second, ended(200, 1), container="train") == ("", 1, None, False, "")


def test_a_silent_node_is_named() -> None:
    pod = folded(*BEGUN, row(240, "node_not_ready", message="stopped posting"))
    assert pod.silent_node(at(200)) == "its node node-1 is not heard of: stopped posting"
    assert pod.silent_node(at(2000)) == ""


def test_pods_of_the_next_attempt_are_those_made_since() -> None:
    pods = Pods([row(0, "created", uid="old"), row(300, "created", uid="new")])
    assert [pod.uid for pod in pods.coming(at(290), {"old"})] == ["new"]
    assert pods.coming(at(290), {"new"}) == []
