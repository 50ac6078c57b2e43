"""Which pods the API server asks about, and which of them are watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.cluster import objects
from tests.cluster.chart import NAMESPACE
from tests.cluster.controllers import owned, played
from tests.integration.webhook.site import Site, is_watched

Thing = dict[str, Any]
WATCH: Final = {"runwatch.dev/watch": "true"}
ORIGINAL: Final = {"managed-mldiagnostics-gke": "true"}
OWN_KIND: Final[Thing] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sweeps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "kind": "Sweep",
            "plural": "sweeps",
            "singular": "sweep",
            "listKind": "SweepList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
KINDS: Final[dict[str, Callable[..., Thing]]] = {
    make.__name__: make
    for make in (
        objects.job, objects.cron_job, objects.job_set, objects.ray_cluster, objects.ray_job,
        objects.ray_service, objects.leader_worker_set, objects.py_torch_job, objects.mpi_job,
        objects.train_job, objects.stateful_set, objects.deployment,
    )
}  # fmt: skip


@pytest.mark.parametrize("label", [WATCH, ORIGINAL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_of_the_workload_is_enough(
    shared: Site, space: str, kind: str, label: dict[str, str]
) -> None:
    """Over TLS, with the rights that the chart gives and no more; each pod is asked about once."""
    before = len(shared.cluster.reviews)
    pods = played(shared.cluster, KINDS[kind]("w", labels=label), space)
    assert [is_watched(pod) for pod in pods] == [True] * len(pods)
    assert len(shared.reviews(before)) == len(pods)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_label_a_pod_stays_as_it_is(shared: Site, space: str, kind: str) -> None:
    before = len(shared.cluster.reviews)
    pods = played(shared.cluster, KINDS[kind]("w"), space)
    assert [is_watched(pod) for pod in pods] == [False] * len(pods)
    for called, pod in zip(shared.cluster.reviews[before:], pods, strict=True):
        assert called.request["object"]["spec"].items() <= pod["spec"].items()
        assert called.answer is not None and "patch" not in called.answer["response"]


@pytest.mark.parametrize(("label", "by"), [(WATCH, "namespace"), (ORIGINAL, "namespace-original")])
def test_in_a_labelled_namespace_every_pod_is_watched(
    shared: Site, space: str, label: dict[str, str], by: str
) -> None:
    shared.cluster.namespace(space, label)
    before = len(shared.cluster.reviews)
    pods = [
        *played(shared.cluster, objects.pod("alone"), space),
        *played(shared.cluster, objects.pod("labelled", labels=WATCH | ORIGINAL), space),
        *played(shared.cluster, objects.job_set("gpt", labels=ORIGINAL), space),
    ]
    assert [is_watched(pod) for pod in pods] == [True] * 4
    assert shared.reviews(before) == [by] * 4


@pytest.mark.parametrize(("label", "by"), [(WATCH, "pod"), (ORIGINAL, "pod-original")])
def test_a_pod_may_be_labelled_itself(
    shared: Site, space: str, label: dict[str, str], by: str
) -> None:
    before = len(shared.cluster.reviews)
    (pod,) = played(shared.cluster, objects.pod("alone", labels=label), space)
    assert (is_watched(pod), shared.reviews(before)) == (True, [by])


def test_both_labels_are_one_question(shared: Site, space: str) -> None:
    shared.cluster.namespace(space, WATCH | ORIGINAL)
    before = len(shared.cluster.reviews)
    (pod,) = played(shared.cluster, objects.pod("alone", labels=WATCH | ORIGINAL), space)
    assert (is_watched(pod), shared.reviews(before)) == (True, ["namespace"])


def test_a_bare_pod_of_an_unlabelled_namespace_is_nobodys_question(
    shared: Site, space: str
) -> None:
    before = len(shared.cluster.reviews)
    (pod,) = played(shared.cluster, objects.pod("alone"), space)
    assert (is_watched(pod), shared.reviews(before)) == (False, [])


@pytest.mark.parametrize("label", ["diagon-webhook-exempt", "runwatch.dev/exempt"])
def test_nobody_asks_about_an_exempt_namespace(shared: Site, space: str, label: str) -> None:
    shared.cluster.namespace(space, {label: "true", **WATCH})
    before = len(shared.cluster.reviews)
    pods = [
        *played(shared.cluster, objects.pod("alone", labels=WATCH), space),
        *played(shared.cluster, objects.job_set("gpt", labels=ORIGINAL), space),
    ]
    assert ([is_watched(pod) for pod in pods], shared.reviews(before)) == ([False] * 3, [])


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "kube-node-lease", NAMESPACE])
def test_nobody_asks_about_the_systems_namespaces_and_our_own(shared: Site, name: str) -> None:
    """A webhook that is asked about its own pods, or about DNS, could keep a cluster down."""
    shared.cluster.namespace(name, WATCH)
    before = len(shared.cluster.reviews)
    (pod,) = played(shared.cluster, objects.pod("alone", labels=WATCH), name)
    assert (is_watched(pod), shared.reviews(before)) == (False, [])


def test_a_pod_may_be_left_out_of_a_labelled_namespace(shared: Site, space: str) -> None:
    shared.cluster.namespace(space, WATCH)
    before = len(shared.cluster.reviews)
    no = {"runwatch.dev/watch": "false"}
    (alone,) = played(shared.cluster, objects.pod("alone", labels=no), space)
    assert (is_watched(alone), shared.reviews(before)) == (False, [])
    pods = played(shared.cluster, objects.job("nightly", labels=no), space)
    assert [is_watched(pod) for pod in pods] == [False, False]


def test_our_own_pods_are_left_alone_elsewhere_too(shared: Site, space: str) -> None:
    shared.cluster.namespace(space, WATCH)
    before = len(shared.cluster.reviews)
    ours = {"app.kubernetes.io/part-of": "runwatch"}
    (pod,) = played(shared.cluster, objects.pod("agent", labels=ours), space)
    assert (is_watched(pod), shared.reviews(before)) == (False, [])


def test_a_change_of_a_pod_is_no_question(shared: Site, space: str) -> None:
    (pod,) = played(shared.cluster, objects.pod("alone", labels=WATCH), space)
    before = len(shared.cluster.reviews)
    shared.cluster.patch("Pod", "alone", {"metadata": {"labels": {"x": "y"}}}, space)
    shared.cluster.delete("Pod", "alone", space)
    assert shared.reviews(before) == []


def test_a_workload_of_a_kind_that_we_may_not_read_is_named(shared: Site, space: str) -> None:
    """RBAC is least privilege: an in-house kind is not in it unless the values say so."""
    shared.cluster.namespace(space, WATCH)
    shared.cluster.apply([OWN_KIND])
    stored = shared.cluster.create(objects.thing("example.com/v1", "Sweep", "trees", {}), space)
    pod = shared.cluster.create(owned(objects.pod("t-0"), stored), space)
    told = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
    assert '"kind": "Sweep", "name": "trees"' in told["RUNWATCH_WORKLOAD"]
    assert "GKE_DIAGON_IDENTIFIER" not in told
    warnings = shared.cluster.reviews[-1].answer["response"]["warnings"]  # type: ignore[index]
    assert [each for each in warnings if "Sweep 'trees'" in each] == warnings != []
