"""helm itself installs, upgrades and removes the chart, at an API server."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.chart import CHART, helm
from tests.cluster.server import Cluster
from tests.unit.deploy.releases import SETS

KEYS = {
    "main",
    "ingest-agents",
    "ingest-jobs",
    "ingest-operator",
    "operate-operator",
    "view-prometheus",
}


class Helm:
    """As a person's machine has it."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self._home = home

    def ask(self, *words: str, **values: Any) -> subprocess.CompletedProcess[str]:
        kubeconfig = str(self.cluster.kubeconfig)
        return subprocess.run(
            [helm(), *words, "-n", "runwatch", *(["--values", "-"] if values else [])],
            env={"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": kubeconfig},
            input=json.dumps(values) if values else None,
            capture_output=True,
            text=True,
            timeout=100,
        )  # fmt: skip

    def done(self, *words: str, **values: Any) -> str:
        done = self.ask(*words, **values)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def upgrade(self, chart: Path = CHART, **values: Any) -> str:
        return self.done(
            "upgrade", "--install", "--create-namespace", "runwatch", str(chart), **values
        )


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Helm]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield Helm(cluster, tmp_path / "home")


def words(cluster: Cluster, name: str, namespace: str = "runwatch") -> dict[str, str]:
    data = cluster.get("Secret", name, namespace)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def test_tokens_are_made_once_and_stay(person: Helm) -> None:
    """Also when the release is removed and comes back: agents and people have them."""
    person.cluster.namespace("team-a")
    told = person.upgrade(watch={"namespaces": ["team-a"]})
    tokens = words(person.cluster, "runwatch-tokens")
    assert tokens.keys() == KEYS and len(set(tokens.values())) == len(KEYS)
    assert all(len(token) >= 24 and token.isalnum() for token in tokens.values())
    assert not any(token in told for token in tokens.values())
    jobs = {"token": tokens["ingest-jobs"]}
    assert words(person.cluster, "runwatch-ingest", "team-a") == jobs

    person.upgrade(watch={"namespaces": ["team-a"]}, webhook={"replicas": 3})
    assert words(person.cluster, "runwatch-tokens") == tokens
    assert words(person.cluster, "runwatch-ingest", "team-a") == jobs
    assert person.cluster.get("Deployment", "runwatch-webhook", "runwatch")["spec"]["replicas"] == 3

    person.done("uninstall", "runwatch")
    assert words(person.cluster, "runwatch-tokens") == tokens
    person.upgrade(watch={"namespaces": ["team-a"]})
    assert words(person.cluster, "runwatch-tokens") == tokens


def test_agents_in_pods_get_the_authority_of_the_head(person: Helm) -> None:
    for space in ("runwatch", "team-a"):
        person.cluster.namespace(space)
    authority = base64.b64encode(b"an authority").decode()
    place = {"name": "head-ca", "namespace": "runwatch"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": place,
        "data": {"ca.crt": authority},
    }
    person.cluster.apply([secret])
    person.upgrade(caSecret="head-ca", watch={"namespaces": ["team-a"]})
    told = words(person.cluster, "runwatch-ingest", "team-a")
    assert told["ca.crt"] == "an authority" and len(told["token"]) >= 24


def test_a_token_that_is_missing_is_made_and_one_that_is_changed_stays(person: Helm) -> None:
    person.upgrade()
    tokens = words(person.cluster, "runwatch-tokens")
    own = base64.b64encode(b"a-token-of-our-own-with-40-characters-xx").decode()
    change = {"data": {"main": own, "view-prometheus": None}}
    person.cluster.patch("Secret", "runwatch-tokens", change, "runwatch")
    person.upgrade()
    now = words(person.cluster, "runwatch-tokens")
    assert now["main"] == "a-token-of-our-own-with-40-characters-xx"
    assert now["view-prometheus"] not in ("", tokens["view-prometheus"])
    assert {key: now[key] for key in KEYS - {"main", "view-prometheus"}} == {
        key: tokens[key] for key in KEYS - {"main", "view-prometheus"}
    }


def test_what_the_webhook_wrote_outlives_an_upgrade(person: Helm) -> None:
    """Its certificate, and the authority by which the API server knows it."""
    person.upgrade()
    [configuration] = person.cluster.list("mutatingwebhookconfigurations")
    name = configuration["metadata"]["name"]
    for entry in configuration["webhooks"]:
        entry["clientConfig"]["caBundle"] = base64.b64encode(b"the authority").decode()
    person.cluster.patch(configuration["kind"], name, {"webhooks": configuration["webhooks"]})
    secret = {"data": {"one": base64.b64encode(b"a certificate").decode()}}
    person.cluster.patch("Secret", "runwatch-webhook-certificate", secret, "runwatch")

    person.upgrade(operator={"replicas": 1}, webhook={"timeoutSeconds": 4})
    assert words(person.cluster, "runwatch-webhook-certificate") == {"one": "a certificate"}
    [after] = person.cluster.list("mutatingwebhookconfigurations")
    wanted = [entry | {"timeoutSeconds": 4} for entry in configuration["webhooks"]]
    assert after["webhooks"] == wanted


def test_removed_it_leaves_the_kinds_their_objects_and_the_tokens(person: Helm) -> None:
    person.upgrade()
    person.cluster.namespace("team")
    capture = {
        "apiVersion": "runwatch.dev/v1alpha1",
        "kind": "Capture",
        "metadata": {"name": "a"},
        "spec": {"run": "llama", "durationSeconds": 3},
    }
    person.cluster.create(capture, "team")
    person.done("uninstall", "runwatch")
    assert person.cluster.get("Capture", "a", "team")["spec"]["run"] == "llama"
    left = {
        (kind, thing["metadata"]["name"])
        for kind in KINDS
        for thing in person.cluster.list(kind)
        if thing["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "runwatch"
    }
    assert left == {("secrets", "runwatch-tokens")}


KINDS = (
    "secrets", "configmaps", "services", "serviceaccounts", "pods", "deployments.apps",
    "statefulsets.apps", "daemonsets.apps", "networkpolicies", "poddisruptionbudgets", "roles",
    "rolebindings", "clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations",
)  # fmt: skip


def test_a_newer_chart_changes_no_selector_and_starts_no_pod_anew(
    person: Helm, tmp_path: Path
) -> None:
    """Selectors, a set's Service and its claims may never change: Kubernetes refuses that."""
    person.upgrade()
    before = _frozen(person.cluster)
    newer = tmp_path / "newer"
    shutil.copytree(CHART, newer)
    about = (newer / "Chart.yaml").read_text()
    assert about.count("\nversion: 0.1.0\n") == 1
    (newer / "Chart.yaml").write_text(about.replace("\nversion: 0.1.0\n", "\nversion: 9.9.9\n"))
    person.upgrade(newer)
    after = _frozen(person.cluster)
    assert len(before) == 4 and before == after
    [found] = person.cluster.list("daemonsets.apps")
    assert found["metadata"]["labels"]["helm.sh/chart"] == "runwatch-9.9.9"


def _frozen(cluster: Cluster) -> dict[str, Any]:
    return {
        thing["metadata"]["name"]: [
            thing["spec"].get(name)
            for name in ("selector", "serviceName", "volumeClaimTemplates", "template")
        ]
        for kind in ("deployments.apps", "statefulsets.apps", "daemonsets.apps")
        for thing in cluster.list(kind)
    }


def test_a_render_alone_cannot_give_away_tokens_that_it_does_not_know(person: Helm) -> None:
    person.cluster.namespace("team-a")
    own = {"existingSecret": "own"}
    done = person.ask(
        "install", "--create-namespace", "runwatch", str(CHART),
        tokens=own, watch={"namespaces": ["team-a"]},
    )  # fmt: skip
    assert done.returncode != 0 and "make the Secrets `runwatch-ingest`" in done.stderr
    person.cluster.namespace("runwatch")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "own"},
        "stringData": {key: f"{key}-0123456789-0123456789" for key in KEYS},
    }
    person.cluster.create(secret, "runwatch")
    person.upgrade(tokens=own, watch={"namespaces": ["team-a"]})
    token = words(person.cluster, "runwatch-ingest", "team-a")
    assert token == {"token": "ingest-jobs-0123456789-0123456789"}
    assert person.cluster.find("Secret", "runwatch-tokens", "runwatch") is None


PAGES = {
    "everything": "https://tools.example/team/runwatch",
    "outside-head": "https://runwatch.example:8090",
}
OFTEN = ("everything", "own-secrets", "restricted")


@pytest.mark.parametrize(
    "name", [each if each in OFTEN else pytest.param(each, marks=pytest.mark.soak) for each in SETS]
)
def test_every_set_can_be_installed_and_says_where_the_page_is(person: Helm, name: str) -> None:
    for namespace in ("team-a", "team-b", "research", "production"):
        person.cluster.namespace(namespace)
    values = str(CHART / "ci" / f"{name}-values.yaml")
    told = person.done("install", "--create-namespace", "runwatch", str(CHART), "--values", values)
    assert PAGES.get(name, "kubectl port-forward service/runwatch-head") in told
    has_agent = bool(person.cluster.list("daemonsets.apps"))
    assert ("pod-security.kubernetes.io/enforce=privileged" in told) is has_agent
    lost = "everything recorded is lost with the head's pod"
    assert (lost in told) is (name == "laptop")
    person.done("uninstall", "runwatch")
