"""What a pod's object says that happened to it, and what it does not say."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.k8s.operator.pods import Told, told_of, told_of_gone
from tests.cluster.kubelet import PRESSURE, UNSCHEDULABLE, Played, Thing, Time, pod_named

SECOND = 1_000_000_000


class Pod(Played):
    """Its deeds are ten seconds apart; `at` counts from its creation."""

    def __init__(self, **more: Any) -> None:
        super().__init__(pod_named("llama-0", **more), Time())
        self.began_ns = self.time.ns

    def then(self, deed: str, *arguments: Any, **more: Any) -> None:
        self.time.passes(10)
        getattr(self, deed)(*arguments, **more)

    def runs(self) -> Pod:
        self.then("scheduled")
        self.then("accepted")
        self.then("starts")
        return self

    def told(self) -> list[tuple[int, str]]:
        return self.lines(told_of(self.thing))

    def lines(self, found: list[Told]) -> list[tuple[int, str]]:
        return [((each.time_ns - self.began_ns) // SECOND, each.what.what) for each in found]

    def the(self, what: str) -> dict[str, Any]:
        (found,) = (each for each in told_of(self.thing) if each.what.what == what)
        return found.what.body()


def test_a_pod_that_ends_well_is_told_from_its_making_to_its_end() -> None:
    pod = Pod().runs()
    pod.then("ends")
    pod.then("over", "Succeeded")
    assert pod.told() == [
        (0, "created"),
        (10, "scheduled"),
        (30, "started"),
        (40, "container_ended"),
        (40, "ended"),
    ]
    assert pod.the("ended")["reason"] == "Succeeded"
    assert pod.the("container_ended")["exit_code"] == 0
    assert pod.the("scheduled") == {
        **pod.the("created"),
        "what": "scheduled",
    }
    who = {key: pod.the("created")[key] for key in ("pod", "namespace", "uid", "node", "workload")}
    assert who == {
        "pod": "llama-0", "namespace": "team", "uid": pod.uid, "node": "node-1",
        "workload": "Job/llama",
    }  # fmt: skip


def test_a_program_that_fails_says_its_code() -> None:
    pod = Pod().runs()
    pod.then("ends", exit_code=3)
    pod.then("over", "Failed")
    assert pod.told()[-2:] == [(40, "container_ended"), (40, "ended")]
    assert (pod.the("container_ended")["exit_code"], pod.the("ended")["reason"]) == (3, "Failed")


def test_a_container_killed_for_memory() -> None:
    pod = Pod().runs()
    pod.then("ends", exit_code=137, reason="OOMKilled")
    pod.then("over", "Failed")
    assert pod.told()[-2:] == [(40, "ended"), (40, "oom_killed")]
    told = pod.the("oom_killed")
    assert (told["exit_code"], told["reason"], told["container"]) == (137, "OOMKilled", "train")


def test_a_program_that_ends_with_137_by_itself_had_memory_enough() -> None:
    pod = Pod().runs()
    pod.then("ends", exit_code=137)
    pod.then("over", "Failed")
    assert "oom_killed" not in dict(map(reversed, pod.told()))  # type: ignore[arg-type]
    assert pod.the("container_ended")["exit_code"] == 137


def test_a_node_that_is_short_of_memory_evicts() -> None:
    pod = Pod().runs()
    pod.then("ends", exit_code=137)
    pod.then("evicted")
    assert pod.told()[3:] == [(40, "container_ended"), (40, "ended"), (50, "evicted")]
    assert (pod.the("evicted")["reason"], pod.the("evicted")["message"]) == ("Evicted", PRESSURE)
    assert pod.the("ended")["reason"] == "Evicted"


def test_an_older_node_says_evicted_in_the_status_alone() -> None:
    pod = Pod().runs()
    pod.then("over", "Failed")
    pod.thing["status"] |= {"reason": "Evicted", "message": PRESSURE, "containerStatuses": []}
    assert pod.told()[2:] == [(40, "ended"), (40, "evicted")]  # and of no container


def test_a_pod_of_higher_priority_sends_it_away() -> None:
    pod = Pod().runs()
    pod.then("preempted")
    pod.then("deleted", grace=30)
    pod.then("ends", exit_code=143)
    assert pod.told()[3:] == [(40, "preempted"), (50, "deleted"), (60, "container_ended")]
    assert pod.the("preempted")["reason"] == "PreemptionByScheduler"


def test_a_kubelet_makes_room_for_a_critical_pod() -> None:
    pod = Pod().runs()
    why = "Preempted in order to admit critical pod"
    pod.condition("DisruptionTarget", True, "TerminationByKubelet", why)
    pod.then("over", "Failed")
    pod.status.update({"reason": "Preempting", "message": why})
    assert (30, "preempted") in pod.told()


@pytest.mark.parametrize("deed", ["tainted", "evicted_by_api"])
def test_whoever_drains_a_node_evicts(deed: str) -> None:
    pod = Pod().runs()
    pod.then(deed)
    pod.then("deleted")
    assert pod.told()[3:] == [(40, "evicted"), (50, "deleted")]


def test_a_pod_whose_node_is_no_more_is_lost_with_it() -> None:
    pod = Pod().runs()
    pod.then("collected")
    assert pod.told()[3:] == [(40, "ended"), (40, "evicted"), (40, "node_not_ready")]


def test_a_node_that_shuts_down_evicts() -> None:
    pod = Pod().runs()
    why = "Pod was terminated in response to imminent node shutdown."
    pod.condition("DisruptionTarget", True, "TerminationByKubelet", why)
    pod.status.update({"phase": "Failed", "reason": "Terminated", "message": why})
    assert (30, "evicted") in pod.told()
    assert (pod.the("evicted")["reason"], pod.the("evicted")["message"]) == ("Terminated", why)


def test_an_older_server_says_that_the_node_is_lost_in_the_pod_s_status() -> None:
    pod = Pod().runs()
    pod.then("unheard")
    pod.status.update({"reason": "NodeLost", "message": "Node node-1 is unresponsive"})
    assert pod.told()[3:] == [(40, "node_not_ready")]


def test_a_disruption_that_was_given_up_is_none() -> None:
    pod = Pod().runs()
    pod.then("preempted")
    pod.condition("DisruptionTarget", False, "PreemptionByScheduler")
    assert len(pod.told()) == 3


def test_a_pod_without_room_waits_and_is_then_scheduled() -> None:
    pod = Pod()
    pod.then("unschedulable")
    assert pod.told() == [(0, "created"), (10, "unschedulable")]
    assert pod.the("unschedulable")["message"] == UNSCHEDULABLE
    pod.then("scheduled")
    assert pod.told() == [(0, "created"), (20, "scheduled")]


def test_a_pod_that_is_held_back_says_so() -> None:
    pod = Pod()
    pod.then(
        "unschedulable",
        "Scheduling is blocked due to non-empty scheduling gates",
        "SchedulingGated",
    )
    assert pod.the("unschedulable")["reason"] == "SchedulingGated"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_does_not_come(reason: str) -> None:
    pod = Pod()
    pod.then("scheduled")
    pod.then("accepted")
    pod.then("image", reason, "not found")
    assert pod.told()[2:] == [(20, "pull_failed")]
    told = pod.the("pull_failed")
    assert (told["reason"], told["message"], told["container"]) == (reason, "not found", "train")


def test_a_slow_pull_is_no_failure() -> None:
    pod = Pod()
    pod.then("scheduled")
    pod.then("accepted")
    pod.time.passes(900)
    assert pod.told() == [(0, "created"), (10, "scheduled")]


def test_a_container_that_ends_again_and_again_has_a_life_each_time() -> None:
    pod = Pod(restart_policy="Always").runs()
    lives = []
    for _ in range(3):
        pod.then("ends", exit_code=1)
        lives += told_of(pod.thing)
        pod.then("waits_again")
        lives += told_of(pod.thing)
        pod.then("restarts")
        lives += told_of(pod.thing)
    told = {
        ((each.time_ns - pod.began_ns) // SECOND, each.what.what, each.what.restarts)
        for each in lives
        if each.what.container
    }
    assert told == {
        (30, "started", 0), (40, "container_ended", 0),
        (60, "started", 1), (70, "container_ended", 1),
        (90, "started", 2), (100, "container_ended", 2),
        (120, "started", 3),
    }  # fmt: skip


def test_a_container_that_nobody_found_again_ended_when_the_pod_was_not_ready() -> None:
    pod = Pod(restart_policy="Always").runs()
    pod.then("unheard")
    lost = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}
    pod.status["containerStatuses"][0] |= {
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {"terminated": {**lost, "finishedAt": None}},
        "restartCount": 1,
    }
    assert pod.told()[2:] == [(40, "container_ended")]
    assert pod.the("container_ended")["restarts"] == 0


def test_a_sidecar_is_not_told_of_when_it_begins_and_neither_is_an_init_container() -> None:
    pod = Pod(init=["fetch"], sidecars=["proxy"])
    pod.then("scheduled")
    pod.then("accepted")
    pod.then("starts", "fetch")
    pod.then("ends", "fetch")
    pod.then("starts", "proxy")
    pod.then("starts", "train")
    pod.then("ends", "train")
    pod.then("ends", "proxy", exit_code=137)
    pod.then("over", "Succeeded")
    told = [(each.what.what, each.what.container) for each in told_of(pod.thing)]
    assert told == [
        ("created", ""),
        ("scheduled", ""),
        ("container_ended", "fetch"),
        ("started", "train"),
        ("container_ended", "train"),
        ("container_ended", "proxy"),
        ("ended", ""),
    ]
    assert pod.the("ended")["reason"] == "Succeeded"


def test_a_pod_that_the_node_refuses_ends_with_its_reason() -> None:
    pod = Pod()
    pod.then("scheduled")
    pod.then("refused", "OutOfcpu", "Node didn't have enough resource: cpu, requested: 8000")
    assert pod.told() == [(0, "created"), (10, "scheduled"), (20, "ended")]
    assert pod.the("ended")["reason"] == "OutOfcpu"


def test_deleted_means_when_it_was_asked_for() -> None:
    pod = Pod().runs()
    pod.then("deleted", grace=3600)
    assert pod.told()[-1] == (40, "deleted")


def test_a_pod_deleted_at_once_is_deleted_now() -> None:
    pod = Pod().runs()
    found = told_of_gone(pod.thing, pod.time.ns + 7 * SECOND + 5)
    assert pod.lines(found)[-1] == (37, "deleted")


def test_a_pod_cleaned_up_after_it_ended_says_no_more_than_before() -> None:
    pod = Pod().runs()
    pod.then("ends")
    pod.then("over", "Succeeded")
    before = told_of(pod.thing)
    assert told_of_gone(pod.thing, pod.time.ns + 3600 * SECOND) == before


STRANGE: list[Thing] = [
    {},
    {"metadata": None, "status": None, "spec": None},
    {"metadata": {"creationTimestamp": "yesterday"}, "status": {"phase": 7, "conditions": "no"}},
    {"status": {"phase": "Failed"}},
    {"status": {"containerStatuses": [{}, {"state": {"terminated": {}}}, None, "x"]}},
    {"status": {"containerStatuses": [{"name": "a", "state": None, "restartCount": "many"}]}},
    {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": "x"}},
]


@pytest.mark.parametrize("thing", STRANGE, ids=range(len(STRANGE)))
def test_what_no_server_writes_is_passed_over(thing: Thing) -> None:
    assert all(each.what.what in ("deleted", "ended") for each in told_of(thing))
    assert all(each.what.what in ("deleted", "ended") for each in told_of_gone(thing, SECOND))


def test_who_looks_again_is_told_the_same() -> None:
    pod = Pod(init=["fetch"], sidecars=["proxy"])
    pod.then("scheduled")
    pod.then("accepted")
    pod.then("image", "ErrImagePull", "not found", "train")
    pod.time.passes(10_000)
    first = told_of(pod.thing)
    pod.thing["status"]["containerStatuses"].reverse()
    pod.thing["status"]["conditions"].reverse()
    assert told_of(pod.thing) == first
