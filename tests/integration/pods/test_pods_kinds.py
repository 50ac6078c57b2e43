"""Pods of each kind of workload: made by its controller at an API server, which asks the webhook;
and then played as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cluster import objects
from tests.cluster.controllers import played
from tests.cluster.server import Cluster
from tests.integration.pods import release
from tests.integration.pods.kubelet import OURS, Node
from tests.integration.pods.site import Site
from tests.integration.webhook.site import Site as Webhook

pytestmark = [pytest.mark.xdist_group("pods"), pytest.mark.soak]

PROGRAM: Final = """
import time, runwatch
run = runwatch.init()
run.log(step=1, value=1.0)
time.sleep(600)
"""
COMMAND: Final = ("python", "-c", PROGRAM)
USER: Final = {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}
SPEC: Final = objects.pod_spec(
    objects.container(command=COMMAND), restartPolicy="Never", securityContext=USER
)


def train_job(name: str) -> dict[str, Any]:
    made = objects.train_job(name)
    made["spec"]["trainer"]["command"] = list(COMMAND)
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart is installed, its webhook serves, and all pods of `team` are watched."""
    place = tmp_path_factory.mktemp("api")
    with Cluster(place / "cluster") as cluster:
        webhook = Webhook(place, cluster, {"address": release.HEAD})
        cluster.namespace("team", {"runwatch.dev/watch": "true"})
        webhook.start().ready()
        yield cluster
        webhook.close()


KINDS: Final = {
    "Job/nightly": (objects.job("nightly", SPEC), "team/nightly", [0, 1]),
    "JobSet/gpt": (objects.job_set("gpt", SPEC), "team/gpt", [0, 1]),
    "LeaderWorkerSet/llama": (objects.leader_worker_set("llama", SPEC), "team/llama-0", [0, 1]),
    "PyTorchJob/bert": (objects.py_torch_job("bert", SPEC, count=0), "team/bert", [0]),
    "TrainJob/tuned": (train_job("tuned"), "team/tuned", [0, 1]),
    "StatefulSet/served": (objects.stateful_set("served", SPEC, count=1), "team/served", [0]),
    "Deployment/web": (objects.deployment("web", SPEC, count=1), "team/web", [0]),
    "Pod/alone": (objects.pod("alone", SPEC), "team/alone", [0]),
}
"""What somebody submits, what its run is called, and the ranks of its pods.  The last three have
one pod, for nothing would tell several apart."""


@pytest.mark.parametrize("workload", KINDS)
def test_what_its_pods_are(site: Site, node: Node, cluster: Cluster, workload: str) -> None:
    thing, name, ranks = KINDS[workload]
    made = played(cluster, thing, "team")
    pods = [site.play(pod, node, {objects.IMAGE: OURS}) for pod in made]

    def known() -> list[dict[str, Any]]:
        runs = [run for run in site.ask("/runs")["runs"] if run["workload"] == workload]
        told = [site.ask(f"/runs/{run['run']}/processes")["processes"] for run in runs]
        found = [process for processes in told for process in processes]
        return found if {p["pod_uid"] for p in found} == {pod.uid for pod in pods} else []

    told = {each["pod_uid"]: each for each in site.until(known, f"all pods of {workload}")}
    assert [told[pod.uid]["rank"] for pod in pods] == ranks
    assert [told[pod.uid]["pod"] for pod in pods] == [pod["metadata"]["name"] for pod in made]
    assert {each["node"] for each in told.values()} == {"gpu-1"}
    [run] = [run for run in site.ask("/runs")["runs"] if run["workload"] == workload]
    assert run["name"] == name and run["attempts"] == 1
