"""A pod of each kind of workload, as it was asked about, and what it becomes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.k8s.api import Access, Api
from runwatch.k8s.judge import Judge
from runwatch.k8s.reviews import question_in
from runwatch.k8s.workloads import Workloads
from runwatch.testing import FakeClock
from tests.cluster.server import Cluster
from tests.unit.k8s.admitted import (
    HEAD,
    REVIEWS,
    SETTINGS,
    SIX_O_CLOCK_NS,
    is_valid,
    recorded,
    stored,
)
from tests.unit.k8s.conftest import all_closed

Thing = dict[str, Any]

# name of the file: kind, name, apiVersion, plural, number of its uid, created, parent
EXPECTED = """
job                       Job             nightly  batch/v1                      jobs             1 06:00:24
cron-job                  Job             hourly-29394900 batch/v1               jobs             2 06:00:32 hourly
job-set                   JobSet          gpt      jobset.x-k8s.io/v1alpha2      jobsets          1 06:00:36
ray-cluster-head          RayCluster      shared   ray.io/v1                     rayclusters      1 06:00:50
ray-job-worker            RayJob          tune     ray.io/v1                     rayjobs          1 06:00:56
ray-job-submitter         RayJob          tune-2   ray.io/v1                     rayjobs          1 06:01:08
ray-service-worker        RayService      serve    ray.io/v1                     rayservices      1 06:01:20
leader-worker-set-leader  LeaderWorkerSet llama    leaderworkerset.x-k8s.io/v1   leaderworkersets 1 06:01:28
leader-worker-set-worker  LeaderWorkerSet mixtral  leaderworkerset.x-k8s.io/v1   leaderworkersets 4 06:01:38
pytorch-job-worker        PyTorchJob      resnet   kubeflow.org/v1               pytorchjobs      1 06:01:48
train-job                 TrainJob        finetune trainer.kubeflow.org/v1alpha1 trainjobs        3 06:01:54
mpi-job-worker            MPIJob          bert     kubeflow.org/v2beta1          mpijobs          1 06:02:04
mpi-job-launcher          MPIJob          bert-2   kubeflow.org/v2beta1          mpijobs          1 06:02:14
stateful-set              StatefulSet     notebook apps/v1                       statefulsets     1 06:02:24
deployment                Deployment      eval     apps/v1                       deployments      1 06:02:30
pod                       Pod             alone    v1                            pods             - 06:00:00
"""  # noqa: E501
ROWS = {row.split()[0]: row.split()[1:] for row in EXPECTED.strip().splitlines()}


def test_every_review_is_expected() -> None:
    assert sorted(ROWS) == sorted(path.stem for path in REVIEWS.glob("*.yaml"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """It has the owners of all recorded pods, with the uids and times of then."""
    with Cluster(tmp_path_factory.mktemp("cluster"), enforced=False) as cluster:
        cluster.namespace("team")
        for name in ROWS:
            for owner in recorded(name)[1]:
                kind = cluster.kinds.of(owner)
                cluster._now(lambda k=kind, o=owner: cluster.storage.put(k.key, o))  # type: ignore[misc]
        yield cluster


def answered(cluster: Cluster, review: Thing) -> Thing:
    async def answer() -> Thing:
        access = Access(cluster.server, cluster.account("runwatch", "webhook"))
        clock = FakeClock(SIX_O_CLOCK_NS)
        async with Api(access) as api:
            judge = Judge(Workloads(api), SETTINGS, "runwatch", clock)
            until = asyncio.get_running_loop().time() + 20
            question = question_in(json.dumps(review).encode())
            done = (await judge.judge(question, until)).review
        await all_closed()
        return done

    return asyncio.run(answer())


def expected(name: str, before: Thing) -> Thing:
    """Written by hand, from the contract: the original's two variables, ours, the node's folder."""
    kind, its, api_version, plural, uid, created, *parent = ROWS[name]
    uid = "" if uid == "-" else f"00000000-0000-4000-8000-{uid:0>12}"
    shown_uid = uid or "$(RUNWATCH_POD_UID)"
    created = f"2026-11-19T{created}Z"
    start = f'{{"apiVersion": "{api_version}", "kind": "{kind}", "name": "{its}", "uid": '
    end = f', "created": "{created}", "plural": "{plural}"}}'
    identifier = (
        f'{{"metadata.name": "{its}", "metadata.kind": "{kind}", '
        '"clustername": "projects/p/locations/l/clusters/c", "namespace": "team"}'
    )
    labels = "managed-mldiagnostics-gke=true,queue=night"
    if name == "cron-job":  # those of the night's Job
        labels = ""
    metadata = (
        f'{{"associated-labels": "{labels}", "parent-workload": "{"".join(parent)}", '
        f'"creation-timestamp": "{created}"}}'
    )
    after = copy.deepcopy(before)
    for container in after["spec"]["containers"]:
        container["env"] = [
            *container.get("env", []),
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "RUNWATCH_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "RUNWATCH_WORKLOAD", "value": f'{start}"{shown_uid}"{end}'},
            {"name": "GKE_DIAGON_IDENTIFIER", "value": identifier},
            {"name": "GKE_DIAGON_METADATA", "value": metadata},
            *([{"name": "RUNWATCH_POD_INDEX", "value": "1"}] if kind == "StatefulSet" else []),
            {"name": "RUNWATCH_HEAD", "value": HEAD},
            {"name": "RUNWATCH_CONTAINER", "value": container["name"]},
            {"name": "RUNWATCH_DIR", "value": "/var/lib/runwatch"},
            {"name": "RUNWATCH_AGENT", "value": "off"},
        ]
        container["volumeMounts"].append(
            {"name": "runwatch-records", "mountPath": "/var/lib/runwatch"}
        )
    folder = {"path": "/var/lib/runwatch", "type": "DirectoryOrCreate"}
    after["spec"]["volumes"].append({"name": "runwatch-records", "hostPath": folder})
    after["metadata"].setdefault("labels", {})["runwatch.dev/watched"] = "true"
    after["metadata"].setdefault("annotations", {}).update(
        {"runwatch.dev/injected": "v1 node", "runwatch.dev/workload": f'{start}"{uid}"{end}'}
    )
    return after


@pytest.mark.parametrize("name", ROWS)
def test_a_pod_of_each_kind_knows_whose_it_is(cluster: Cluster, name: str) -> None:
    review, _ = recorded(name)
    pod = review["request"]["object"]
    answer = answered(cluster, review)
    after = stored(pod, answer)
    assert answer["response"]["uid"] == review["request"]["uid"]
    assert after == expected(name, pod)
    is_valid(after)


@pytest.mark.parametrize("name", ROWS)
def test_asked_again_it_changes_nothing(cluster: Cluster, name: str) -> None:
    review, _ = recorded(name)
    review["request"]["object"] = expected(name, review["request"]["object"])
    assert "patch" not in answered(cluster, review)["response"]


@pytest.mark.parametrize("name", ROWS)
def test_a_container_that_came_after_us_gets_the_same(cluster: Cluster, name: str) -> None:
    """Another webhook put it in front, and the API server asks us again."""
    review, _ = recorded(name)
    before = review["request"]["object"]
    token = before["spec"]["containers"][0]["volumeMounts"][-1]
    proxy = {"name": "istio-proxy", "image": "proxy:1", "volumeMounts": [token]}
    after = expected(name, before)
    after["spec"]["containers"].insert(0, copy.deepcopy(proxy))
    review["request"]["object"] = after
    both = copy.deepcopy(before)
    both["spec"]["containers"].insert(0, proxy)
    assert stored(after, answered(cluster, review)) == expected(name, both)


@pytest.mark.parametrize("name", ROWS)
def test_without_a_label_a_pod_stays_as_it_is(cluster: Cluster, name: str) -> None:
    review, owners = recorded(name)
    review["request"]["object"]["metadata"].get("labels", {}).pop("managed-mldiagnostics-gke", None)
    if owners:
        top = owners[-1]
        about: Thing = {"labels": {"managed-mldiagnostics-gke": None}}
        cluster.patch(top["kind"], top["metadata"]["name"], {"metadata": about}, "team")
    try:
        assert answered(cluster, review)["response"].keys() == {"uid", "allowed"}
    finally:
        if owners:
            about = {"labels": {"managed-mldiagnostics-gke": "true"}}
            cluster.patch(top["kind"], top["metadata"]["name"], {"metadata": about}, "team")
