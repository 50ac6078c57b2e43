"""The chart's head, webhook and operator, started by its own words, with its own rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from runwatch.testing import until
from tests.cluster import objects
from tests.cluster.chart import rendered
from tests.cluster.server import Cluster
from tests.integration.webhook.site import is_watched
from tests.unit.deploy.releases import release
from tests.unit.deploy.started import NAMESPACE, Part

pytestmark = pytest.mark.xdist_group("chart-parts")  # they share three programs
INSIDE = {"research": "true"}
SERVICE = "runwatch-webhook"


class Running(NamedTuple):
    cluster: Cluster
    head: Part
    webhook: Part
    operator: Part

    @property
    def refused(self) -> list[tuple[str, str, str]]:
        """What the API server did not let them do."""
        return [
            (asked.user, asked.method, asked.path)
            for asked in self.cluster.asked
            if asked.status in (401, 403)
        ]


@pytest.fixture(
    scope="module",
    params=[["research"], pytest.param([], marks=pytest.mark.soak)],
    ids=["some", "all"],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """An operator of all namespaces, and one of some."""
    place = tmp_path_factory.mktemp("parts")
    parts: list[Part] = []
    with Cluster(place / "cluster") as cluster:
        for namespace in (NAMESPACE, "research", "elsewhere"):
            cluster.namespace(namespace, {"runwatch.dev/watch": INSIDE.get(namespace, "false")})
        cluster.apply(rendered({"operator": {"namespaces": request.param}}))

        def start(kind: str, name: str, **words: str) -> Part:
            root = place / name
            root.mkdir()
            stored = cluster.get(kind, f"runwatch-{name}", NAMESPACE)
            parts.append(Part(root, cluster, stored, words))
            return parts[-1]

        try:
            head = start("StatefulSet", "head")
            its = {
                "http://runwatch-head.runwatch.svc:8090": f"http://127.0.0.1:{head.port('http')}"
            }
            webhook, operator = (
                start("Deployment", "webhook", **its),
                start("Deployment", "operator", **its),
            )
            cluster.services[NAMESPACE, SERVICE] = "127.0.0.1", webhook.port("https")
            for part in parts:
                part.ready()
            yield Running(cluster, head, webhook, operator)
        finally:
            for part in reversed(parts):
                part.close()


def test_what_the_kubelet_asks_is_answered(running: Running) -> None:
    for part in (running.head, running.webhook, running.operator):
        assert part.probe("liveness").startswith("200 "), part.words()
        assert part.probe("readiness").startswith("200 "), part.words()
    assert running.head.probe("startup").startswith("200 ")
    assert running.operator.probe("readiness") == "200 this-pod works\n"


def test_the_webhook_is_called_and_trusted(running: Running) -> None:
    pod = running.cluster.create(objects.pod("one"), "research")
    assert is_watched(pod)
    assert not is_watched(running.cluster.create(objects.pod("one"), "elsewhere"))


def test_the_operator_does_what_is_asked_of_it(running: Running) -> None:
    """Its tokens let it in at the head, and its rights are enough to say so."""
    capture = {
        "apiVersion": "runwatch.dev/v1alpha1",
        "kind": "Capture",
        "metadata": {"name": "nothing"},
        "spec": {"run": "research/nobody", "durationSeconds": 1},
    }
    running.cluster.create(capture, "research")

    def said() -> str:
        told = running.cluster.get("Capture", "nothing", "research").get("status", {})
        return str(told.get("message", "")) if told.get("phase") == "Failed" else ""

    assert "nobody" in until(said, 60, f"the capture to fail: {running.operator.words()}")


def test_nothing_that_they_try_is_beyond_their_rights(running: Running) -> None:
    running.cluster.create(objects.pod("another"), "research")
    users = {asked.user for asked in running.cluster.asked}
    for part in ("webhook", "operator"):
        assert f"system:serviceaccount:{NAMESPACE}:runwatch-{part}" in users
    assert running.refused == []


def test_helm_test_finds_that_all_is_well(running: Running) -> None:
    """The pod of `helm test`, which only looks."""
    [its] = release("default").run("test").spec["containers"]
    told = {each["name"]: each["value"] for each in its["env"]}
    assert told.keys() == {"RUNWATCH_HEAD", "RUNWATCH_TOKEN_FILE", "RUNWATCH_DIR"}
    token = running.head.root / "tokens" / Path(told["RUNWATCH_TOKEN_FILE"]).name
    done = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", *its["command"][1:]],
        env={
            "RUNWATCH_HEAD": f"http://127.0.0.1:{running.head.port('http')}",
            "RUNWATCH_TOKEN_FILE": str(token),
            "RUNWATCH_DIR": str(running.head.root / "person"),
            "PATH": os.environ["PATH"],
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
