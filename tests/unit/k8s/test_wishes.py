"""What labels and annotations ask for: the nearest to the pod decides."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.wishes import Wishes, is_watched, mode_of, spared, wishes
from runwatch.k8s.workloads import Chain, Link
from tests.cluster import objects

Thing = dict[str, Any]
WATCH, ORIGINAL = "runwatch.dev/watch", "managed-mldiagnostics-gke"
SETTINGS = WebhookSettings()


def link(labels: dict[str, str] | None = None, notes: dict[str, str] | None = None) -> Link:
    return Link("batch/v1", "Job", "j", "u", labels=labels or {}, notes=notes or {})


def namespace(labels: dict[str, str] | None = None, notes: dict[str, str] | None = None) -> Thing:
    return {"metadata": {"labels": labels or {}, "annotations": notes or {}}}


@pytest.mark.parametrize(
    ("pod", "owners", "space", "watched"),
    [
        ({}, [{}], {}, False),
        ({WATCH: "true"}, [{}], {}, True),
        ({}, [{WATCH: "true"}], {}, True),
        ({}, [{}, {ORIGINAL: "true"}], {}, True),
        ({}, [{}], {WATCH: "true"}, True),
        ({}, [], {ORIGINAL: "true"}, True),
        ({WATCH: "false"}, [{WATCH: "true"}], {WATCH: "true"}, False),
        ({}, [{WATCH: "false"}, {WATCH: "true"}], {WATCH: "true"}, False),
        ({}, [{WATCH: "true"}, {WATCH: "false"}], {WATCH: "false"}, True),
        ({}, [{ORIGINAL: "false"}], {ORIGINAL: "true"}, False),
        ({WATCH: "false", ORIGINAL: "true"}, [], {}, False),
        ({WATCH: "perhaps"}, [], {WATCH: "true"}, True),
        ({WATCH: "yes"}, [], {}, False),
        ({WATCH: "True"}, [], {}, True),
    ],
)
def test_the_nearest_label_that_says_something_decides(
    pod: dict[str, str], owners: list[dict[str, str]], space: dict[str, str], watched: bool
) -> None:
    chain = Chain([link(labels) for labels in owners])
    assert is_watched(objects.pod(labels=pod), chain, namespace(space)) is watched


def test_each_annotation_is_looked_for_on_its_own() -> None:
    pod = objects.pod(notes={"runwatch.dev/exec": "TRUE", "runwatch.dev/mode": " "})
    chain = Chain(
        [link(notes={"runwatch.dev/name": "near"}), link(notes={"runwatch.dev/name": "far"})]
    )
    space = namespace(notes={"runwatch.dev/mode": "Sidecar", "runwatch.dev/containers": "a,, b"})
    assert wishes(pod, chain, space) == Wishes(
        mode="sidecar", starts="true", containers=["a", "b"], name="near"
    )


def test_exec_may_be_switched_off_nearer_to_the_pod() -> None:
    chain = Chain([link(notes={"runwatch.dev/exec": "true"})])
    assert wishes(objects.pod(), chain, {}).starts == "true"
    pod = objects.pod(notes={"runwatch.dev/exec": "false"})
    assert wishes(pod, chain, {}).starts == ""


@pytest.mark.parametrize(
    ("said", "user"),
    [("0", 0), ("1000", 1000), ("root", None), ("-1", None), ("1e3", None), ("٣", None)]
    + [("9" * 30, None), ("", None)],
)
def test_a_user_is_a_number(said: str, user: int | None) -> None:
    pod = objects.pod(notes={"runwatch.dev/user": said})
    assert wishes(pod, Chain(), {}).user == user


def owned_by(kind: str) -> Thing:
    pod = objects.pod(labels={WATCH: "true"})
    reference = {"apiVersion": "v1", "kind": kind, "name": "n", "uid": "u", "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


@pytest.mark.parametrize(
    ("pod", "name", "labels", "why"),
    [
        (objects.pod(), "team", {}, ""),
        (objects.pod(), "kube-system", {}, "namespace"),
        (objects.pod(), "kube-public", {}, "namespace"),
        (objects.pod(), "runwatch", {}, "namespace"),
        (objects.pod(), "team", {"diagon-webhook-exempt": "true"}, "exempt"),
        (objects.pod(), "team", {"runwatch.dev/exempt": "true"}, "exempt"),
        (objects.pod(), "team", {"runwatch.dev/exempt": "false"}, ""),
        (objects.pod(labels={"app.kubernetes.io/part-of": "runwatch"}), "team", {}, "ours"),
        (objects.pod(labels={"app.kubernetes.io/part-of": "shop"}), "team", {}, ""),
        (objects.pod(notes={"kubernetes.io/config.mirror": "x"}), "team", {}, "static"),
        (owned_by("Node"), "team", {}, "static"),
        (owned_by("Job"), "team", {}, ""),
        (objects.pod(spec=objects.pod_spec(os={"name": "windows"})), "team", {}, "windows"),
        (objects.pod(spec=objects.pod_spec(os={"name": "linux"})), "team", {}, ""),
    ],
)
def test_some_pods_are_never_touched(pod: Thing, name: str, labels: Thing, why: str) -> None:
    assert spared(pod, namespace(labels), name, SETTINGS, "runwatch") == why


def asked(operator: str, *values: str) -> Thing:
    expression = {"key": "kubernetes.io/os", "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return objects.pod(spec=objects.pod_spec(affinity={"nodeAffinity": node}))


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (
            objects.pod(spec=objects.pod_spec(nodeSelector={"kubernetes.io/os": "windows"})),
            "windows",
        ),
        (objects.pod(spec=objects.pod_spec(nodeSelector={"kubernetes.io/os": "linux"})), ""),
        (asked("In", "windows"), "windows"),
        (asked("NotIn", "windows"), ""),
        (asked("In", "linux"), ""),
    ],
)
def test_windows_has_no_folder_of_ours(pod: Thing, why: str) -> None:
    assert spared(pod, {}, "team", SETTINGS, "runwatch") == why


def test_a_namespace_that_is_named_in_the_settings_is_exempt() -> None:
    settings = WebhookSettings(exempt="a, b")
    assert spared(objects.pod(), {}, "b", settings, "runwatch") == "namespace"
    assert spared(objects.pod(), {}, "kube-system", settings, "runwatch") == ""


@pytest.mark.parametrize(
    ("said", "default", "image", "has_sidecars", "mode", "warned"),
    [
        ("", "node", "", False, "node", 0),
        ("", "sidecar", "i", True, "sidecar", 0),
        ("none", "sidecar", "i", True, "none", 0),
        ("sidecar", "node", "i", True, "sidecar", 0),
        ("sidecar", "node", "", True, "none", 1),
        ("sidecar", "node", "i", False, "none", 1),
        ("pod", "none", "i", True, "none", 1),
    ],
)
def test_what_the_cluster_would_refuse_is_not_chosen(
    said: str, default: str, image: str, has_sidecars: bool, mode: str, warned: int
) -> None:
    warnings: list[str] = []
    settings = WebhookSettings(mode=default, image=image)
    chosen = mode_of(Wishes(mode=said), settings, has_sidecars=has_sidecars, warnings=warnings)
    assert (chosen, len(warnings)) == (mode, warned)
