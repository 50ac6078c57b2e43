"""Whose pod it is: from owner to owner, asked of a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.workloads import Chain, Link, Workloads
from runwatch.kube import Owner
from runwatch.kube import Thing as Read
from runwatch.testing import FakeClock
from tests.cluster import objects
from tests.cluster.controllers import owned, played
from tests.cluster.server import Cluster
from tests.unit.k8s.conftest import Asking

Thing = dict[str, Any]


def chain_of(asking: Asking[Chain], pod: Thing, space: str) -> Chain:
    return asking(lambda api: Workloads(api).chain(pod, space))


def reads(cluster: Cluster, space: str, since: int) -> list[str]:
    """Names of what was read in this namespace."""
    asked = cluster.asked[since:]
    return [each.path.rpartition("/")[2] for each in asked if f"/{space}/" in each.path]


def test_a_pod_without_owners_is_its_own(asking: Asking[Chain], space: str) -> None:
    chain = chain_of(asking, objects.pod(), space)
    assert (chain.links, chain.workload, chain.parent) == ([], None, "")


def test_the_way_up_ends_at_what_somebody_submitted(
    cluster: Cluster, asking: Asking[Chain], space: str
) -> None:
    pods = played(cluster, objects.leader_worker_set("llama", labels={"a": "b"}), space)
    chain = chain_of(asking, pods[1], space)
    assert [(link.kind, link.name) for link in chain.links] == [
        ("StatefulSet", "llama-0"),
        ("Pod", "llama-0"),
        ("StatefulSet", "llama"),
        ("LeaderWorkerSet", "llama"),
    ]
    top = cluster.get("LeaderWorkerSet", "llama", space)["metadata"]
    assert chain.workload is not None
    assert chain.workload.uid == top["uid"]
    assert chain.workload.created == top["creationTimestamp"]
    assert chain.workload.labels == {"a": "b"}


def test_a_schedule_is_no_workload_but_its_parent(
    cluster: Cluster, asking: Asking[Chain], space: str
) -> None:
    (pod,) = played(cluster, objects.cron_job("nightly", labels={"queue": "x"}), space)
    chain = chain_of(asking, pod, space)
    assert chain.workload is not None
    assert (chain.workload.kind, chain.workload.name) == ("Job", "nightly-29394900")
    assert chain.parent == "nightly"
    assert chain.links[-1].labels == {"queue": "x"}


def test_a_schedule_that_nobody_may_read_has_a_name_still(
    cluster: Cluster, asking: Asking[Chain], space: str
) -> None:
    (pod,) = played(cluster, objects.cron_job("nightly"), space)
    cluster.faults.fail("GET", "/cronjobs/", 403)
    chain = chain_of(asking, pod, space)
    assert chain.workload is not None
    assert (chain.workload.kind, chain.parent) == ("Job", "nightly")


def test_an_owner_that_is_not_the_controller_is_none(asking: Asking[Chain], space: str) -> None:
    pod = owned(objects.pod(), thing_called("a", space))
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    assert chain_of(asking, pod, space) == Chain([])


def thing_called(name: str, space: str, uid: str = "u-1", kind: str = "Job") -> Thing:
    about = {"name": name, "namespace": space, "uid": uid}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": about}


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_workload_that_cannot_be_read_is_named_by_its_reference(
    cluster: Cluster, asking: Asking[Chain], space: str, status: int
) -> None:
    cluster.faults.fail("GET", f"/{space}/jobs/", status)
    chain = chain_of(asking, owned(objects.pod(), thing_called("a", space)), space)
    assert chain.unread == Owner("batch/v1", "Job", "a", "u-1")
    assert chain.workload == Link("batch/v1", "Job", "a", "u-1")


@pytest.mark.parametrize("status", [500, 503, 429, 0])
def test_what_may_be_otherwise_in_a_moment_is_no_answer(
    cluster: Cluster, asking: Asking[Chain], space: str, status: int
) -> None:
    """The pod is not told another workload than its neighbours."""
    (pod, _) = played(cluster, objects.job_set("gpt", count=1, jobs=2), space)
    cluster.faults.fail("GET", f"/{space}/jobsets/", status, times=9)
    with pytest.raises(ApiError):
        chain_of(asking, pod, space)


def test_an_owner_that_was_made_anew_is_another_one(
    cluster: Cluster, asking: Asking[Chain], space: str
) -> None:
    cluster.create(objects.job("a"), space)
    chain = chain_of(asking, owned(objects.pod(), thing_called("a", space, "of-before")), space)
    assert chain.workload == Link("batch/v1", "Job", "a", "of-before")


def test_a_kind_that_we_do_not_know_is_found_by_the_servers_list(
    cluster: Cluster, asking: Asking[Chain], space: str
) -> None:
    own = objects.thing("kubeflow.org/v1", "XGBoostJob", "trees", {}, {"a": "b"})
    stored = cluster.create(own, space)
    chain = chain_of(asking, owned(objects.pod(), stored), space)
    assert chain.workload is not None
    assert (chain.workload.plural, chain.workload.labels) == ("xgboostjobs", {"a": "b"})


def test_a_kind_that_the_server_does_not_know_either(asking: Asking[Chain], space: str) -> None:
    stranger = thing_called("s", space) | {"apiVersion": "example.com/v9", "kind": "Odd"}
    chain = chain_of(asking, owned(objects.pod(), stranger), space)
    assert chain.workload == Link("example.com/v9", "Odd", "s", "u-1")


def test_owners_in_a_circle_end(cluster: Cluster, asking: Asking[Chain], space: str) -> None:
    first = cluster.create(objects.job("a"), space)
    second = cluster.create(owned(objects.job("b"), first), space)

    def close(thing: Thing) -> None:
        thing["metadata"]["ownerReferences"] = owned(first, second)["metadata"]["ownerReferences"]

    cluster.edit("Job", "a", close, space)
    chain = chain_of(asking, owned(objects.pod(), first), space)
    assert [link.name for link in chain.links] == ["a", "b"]


def test_a_jobs_pods_ask_once(cluster: Cluster, asking: Asking[None], space: str) -> None:
    """Also who comes while the first is still waiting."""
    pods = played(cluster, objects.job_set("gpt", jobs=2, count=4), space)
    cluster.faults.slow("GET", f"/{space}/", 0.05)
    since = len(cluster.asked)

    async def all_of_them(api: Api) -> None:
        workloads = Workloads(api, clock=FakeClock())
        chains = await asyncio.gather(*(workloads.chain(pod, space) for pod in pods))
        assert {chain.workload.name for chain in chains if chain.workload} == {"gpt"}

    asking(all_of_them)
    assert sorted(reads(cluster, space, since)) == ["gpt", "gpt-workers-0", "gpt-workers-1"]


def test_after_ten_seconds_it_is_read_anew(
    cluster: Cluster, asking: Asking[None], space: str
) -> None:
    (pod,) = played(cluster, objects.job("a", count=1), space)
    clock = FakeClock()

    async def twice(api: Api) -> None:
        workloads = Workloads(api, clock=clock)
        for seconds, labels in ((0, {}), (9, {}), (2, {"new": "label"})):
            clock.advance(seconds)
            chain = await workloads.chain(pod, space)
            assert chain.links[0].labels == labels
            cluster.patch("Job", "a", {"metadata": {"labels": {"new": "label"}}}, space)

    asking(twice)


def test_a_namespace_is_its_labels_and_annotations(
    cluster: Cluster, asking: Asking[Read], space: str
) -> None:
    cluster.namespace(space, {"runwatch.dev/watch": "true"})
    found = asking(lambda api: Workloads(api).namespace(space))
    assert found["metadata"]["labels"]["runwatch.dev/watch"] == "true"
    assert found["metadata"]["annotations"] == {}


def test_the_version_is_two_numbers(cluster: Cluster, asking: Asking[tuple[int, int]]) -> None:
    told = cluster.ask("GET", "/version").thing
    expected = (int(told["major"]), int(told["minor"].rstrip("+")))
    assert asking(lambda api: Workloads(api).version()) == expected > (1, 20)
