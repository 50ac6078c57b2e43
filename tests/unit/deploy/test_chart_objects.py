"""Every object of every set of values is one that Kubernetes takes, the oldest that we name and the
newest."""

from __future__ import annotations

import copy
import subprocess
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.cluster.chart import CHART, helm, rendered
from tests.cluster.definitions import wrong_definition
from tests.unit.deploy.kubernetes import NEWEST, VERSIONS, complaints
from tests.unit.deploy.releases import SETS, Thing, release, values_of

OLDEST = (1, 28)
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
)


def test_the_chart_names_the_oldest_kubernetes_that_is_tested() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["kubeVersion"] == f">={OLDEST[0]}.{OLDEST[1]}.0-0"
    assert OLDEST in VERSIONS and NEWEST > OLDEST


def test_there_are_sets_for_at_least_six_kinds_of_clusters() -> None:
    assert len(SETS) >= 6
    for name in SETS:
        text = (CHART / "ci" / f"{name}-values.yaml").read_text()
        assert text.startswith("# "), f"{name} does not say for whom it is"


@pytest.mark.parametrize("name", SETS)
def test_helm_finds_nothing_to_complain_about(name: str) -> None:
    values = CHART / "ci" / f"{name}-values.yaml"
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CHART), "--values", str(values)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("version", [OLDEST, NEWEST], ids=lambda version: f"1.{version[1]}")
@pytest.mark.parametrize("name", SETS)
def test_every_object_is_valid(name: str, version: tuple[int, int]) -> None:
    things = release(name).things
    assert len(things) > 5
    for thing in things:
        called = f"{thing['kind']} {thing['metadata']['name']}"
        assert complaints(thing, version) == [], called


def _with_typo(thing: Thing) -> None:
    thing["spec"]["podselector"] = thing["spec"].pop("selector")


def _with_wrong_type(thing: Thing) -> None:
    thing["spec"]["replicas"] = "two"


def _without_what_is_needed(thing: Thing) -> None:
    del thing["spec"]["template"]


@pytest.mark.parametrize("spoil", [_with_typo, _with_wrong_type, _without_what_is_needed])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_an_invalid_object_would_be_seen(spoil: Any, version: tuple[int, int]) -> None:
    [thing] = [t for t in release("default").of("Deployment") if "webhook" in t["metadata"]["name"]]
    spoilt = copy.deepcopy(thing)
    spoil(spoilt)
    assert complaints(thing, version) == [] and complaints(spoilt, version)


def test_an_invalid_object_of_another_group_would_be_seen() -> None:
    [thing] = release("everything").of("Certificate")
    assert complaints(thing, NEWEST) == []
    assert complaints(thing | {"spec": thing["spec"] | {"dnsnames": []}}, NEWEST)
    assert complaints(thing | {"spec": thing["spec"] | {"usages": ["everything"]}}, NEWEST)


def test_definitions_are_structural() -> None:
    found = release("default").of("CustomResourceDefinition")
    assert {each["metadata"]["name"] for each in found} == {
        "captures.runwatch.dev",
        "runs.runwatch.dev",
        "mldiagnosticsconnections.diagon.gke.io",
    }
    for each in found:
        assert list(wrong_definition(each)) == [], each["metadata"]["name"]
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


@pytest.mark.parametrize("name", SETS)
def test_every_object_is_there_once_and_in_the_releases_namespace(name: str) -> None:
    things = release(name).things
    metas = [(thing["apiVersion"], thing["kind"], thing["metadata"]) for thing in things]
    places = [(*kind, meta.get("namespace"), meta["name"]) for *kind, meta in metas]
    assert [place for place, times in Counter(places).items() if times > 1] == []
    values = values_of(name)
    elsewhere = {
        *values.get("watch", {}).get("namespaces", ()),
        *values.get("operator", {}).get("namespaces", ()),
    }
    for _, kind, namespace, called in places:
        if kind in CLUSTER_WIDE:
            assert namespace is None, called
        else:
            assert namespace in {"runwatch", *elsewhere}, called
            assert namespace == "runwatch" or kind in ("Secret", "Role", "RoleBinding"), called


def test_two_releases_share_only_what_the_cluster_learns() -> None:
    """The same name in another namespace, and another name in the same one."""

    def names(things: list[Thing]) -> set[tuple[str, str, str]]:
        return {
            (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
            for thing in things
            if thing["kind"] != "CustomResourceDefinition"
        }

    values = {"operator": {"namespaces": ["research"]}}
    one = names(rendered(values))
    assert one & names(rendered(values, namespace="second")) == set()
    other = names(rendered(values | {"fullnameOverride": "other"}))
    assert one & other == set()


@pytest.mark.parametrize("name", SETS)
def test_every_object_says_what_it_is_of(name: str) -> None:
    for thing in release(name).things:
        if thing["kind"] == "CustomResourceDefinition":
            continue
        labels = thing["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "runwatch"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/instance"] == "runwatch"
        assert all(len(value) <= 63 for value in labels.values())
