"""What a container is told of itself, down to the original's id of its run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.compat.mldiagnostics.core.run_ids import identify_workload
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Chain, Link
from runwatch.kube import Owner
from tests.cluster import objects
from tests.integration.pods.objects import Placed
from tests.unit.k8s.admitted import HEAD, injected, variables

Thing = dict[str, Any]
CLUSTER: Final = "projects/p/locations/l/clusters/c1"
SETTINGS: Final = WebhookSettings(head=HEAD, cluster=CLUSTER)
ORIGINALS: Final = Path(sys.prefix) / "originals"
WHEEL: Final = pytest.mark.skipif(
    not (ORIGINALS / "google_cloud_mldiagnostics").is_dir(),
    reason="no wheel of the original (make test installs it)",
)


def top(kind: str, name: str, labels: dict[str, str] | None = None) -> Link:
    groups = {"JobSet": "jobset.x-k8s.io/v1alpha2", "RayJob": "ray.io/v1", "CronJob": "batch/v1"}
    group = groups.get(kind, "leaderworkerset.x-k8s.io/v1")
    created = "2026-11-19T06:00:00Z"
    return Link(group, kind, name, f"uid-of-{name}", created, labels=labels or {})


def environment(pod: Thing, chain: Chain, uid: str = "pod-uid") -> dict[str, str]:
    """As the kubelet makes it for the first container."""
    done = injected(pod, chain=chain, settings=SETTINGS).pod
    about = {**done["metadata"], "namespace": "team", "uid": uid}
    placed = Placed({**done, "metadata": about}, "node-1", "10.0.0.7", "10.0.0.1")
    return placed.environment(done["spec"]["containers"][0], {})


def test_both_variables_of_the_original_are_in_every_container() -> None:
    job = Link("batch/v1", "Job", "gpt-workers-0", "u", "2026-11-19T06:00:09Z")
    chain = Chain([job, top("JobSet", "gpt", {"b": "2", "a": "1"})])
    spec = objects.pod_spec(objects.container("a"), objects.container("b"))
    done = injected(objects.pod(spec=spec), chain=chain, settings=SETTINGS).pod
    for container in done["spec"]["containers"]:
        told = variables(container)
        assert json.loads(told["GKE_DIAGON_IDENTIFIER"]) == {
            "metadata.name": "gpt",
            "metadata.kind": "JobSet",
            "clustername": CLUSTER,
            "namespace": "team",
        }
        assert json.loads(told["GKE_DIAGON_METADATA"]) == {
            "associated-labels": "a=1,b=2",
            "parent-workload": "",
            "creation-timestamp": "2026-11-19T06:00:00Z",
        }


def test_the_kubelet_says_the_rest() -> None:
    told = environment(objects.pod("gpt-0"), Chain([top("JobSet", "gpt")]))
    names = ("POD_NAME", "POD_NAMESPACE", "NODE_NAME", "RUNWATCH_POD_UID", "RUNWATCH_CONTAINER")
    assert [told[name] for name in names] == ["gpt-0", "team", "node-1", "pod-uid", "trainer"]


def test_a_pod_that_nobody_owns_is_its_own_workload() -> None:
    """Its name may be made by the server, and its uid is, both after us."""
    pod = objects.pod()
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "debug-"
    done = injected(pod, chain=Chain(), settings=SETTINGS).pod
    done["metadata"] |= {"name": "debug-x7k2p", "namespace": "team", "uid": "u-9"}
    told = Placed(done, "n", "", "").environment(done["spec"]["containers"][0], {})
    assert json.loads(told["RUNWATCH_WORKLOAD"]) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "debug-x7k2p",
        "uid": "u-9",
        "created": "2026-11-19T06:00:00Z",
        "plural": "pods",
    }
    assert json.loads(told["GKE_DIAGON_IDENTIFIER"])["metadata.name"] == "debug-x7k2p"


def test_a_workload_that_nobody_may_read_has_no_time_and_no_original_variables() -> None:
    chain = Chain([], Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "gpt", "u"))
    done = injected(objects.pod(), chain=chain, settings=SETTINGS)
    told = variables(done.pod["spec"]["containers"][0])
    assert not [name for name in told if name.startswith("GKE_DIAGON")]
    assert json.loads(told["RUNWATCH_WORKLOAD"])["name"] == "gpt"
    (warning,) = done.warnings
    assert "JobSet 'gpt'" in warning and "GKE_DIAGON_" in warning


def test_what_starts_it_every_night_is_its_parent() -> None:
    chain = Chain([top("Job", "nightly-1"), top("CronJob", "nightly")])
    told = environment(objects.pod(), chain)
    assert json.loads(told["GKE_DIAGON_METADATA"])["parent-workload"] == "nightly"
    assert json.loads(told["GKE_DIAGON_IDENTIFIER"])["metadata.name"] == "nightly-1"


def test_labels_with_signs_of_the_format_stay_one_label_each() -> None:
    told = environment(objects.pod(), Chain([top("RayJob", "r", {"k8s.io/a": "x_y.z", "b": ""})]))
    assert json.loads(told["GKE_DIAGON_METADATA"])["associated-labels"] == "b=,k8s.io/a=x_y.z"


# ── the original's id ─────────────────────────────────────────────────────────────────────────

ASK_ORIGINAL: Final = """
import json, os, sys
from google_cloud_mldiagnostics.custom_types import mlrun_types
from google_cloud_mldiagnostics.utils import host_utils
gke = mlrun_types.Orchestrator.GKE
for line in sys.stdin:
    os.environ.update(json.loads(line))
    details = host_utils._get_gke_workload_details()
    print(json.dumps([host_utils.get_identifier(gke, details), details]), flush=True)
"""
"""Unmodified, as it runs in a pod of a GKE cluster."""


def of_original(environments: list[dict[str, str]]) -> list[Any]:
    lines = "".join(json.dumps(each) + "\n" for each in environments)
    done = subprocess.run(
        [sys.executable, "-c", ASK_ORIGINAL],
        input=lines,
        env={**os.environ, "PYTHONPATH": str(ORIGINALS), "RUNWATCH_DROPIN": "off"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def pods() -> list[dict[str, str]]:
    """Two ranks, one of them restarted, of a JobSet; one of a RayJob, of an LWS, and of none."""
    job = Link("batch/v1", "Job", "gpt-workers-0", "u", "2026-11-19T06:00:09Z")
    job_set = Chain([job, top("JobSet", "gpt", {"team": "a", "size": "8"})])
    names = ("gpt-workers-0-0-aaaaa", "gpt-workers-0-1-bbbbb", "gpt-workers-0-1-ccccc")
    made = [environment(objects.pod(name), job_set, f"uid-{name}") for name in names]
    for kind, name in (("RayJob", "tune"), ("LeaderWorkerSet", "llama")):
        made.append(environment(objects.pod(f"{name}-0"), Chain([top(kind, name)])))
    made.append(environment(objects.pod("alone"), Chain()))
    return made


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


EXPECTED: Final = [
    *[sha("c1_team_JobSet_gpt_20261119-060000")] * 3,
    sha("c1_team_RayJob_tune_20261119-060000"),
    sha("c1_team_LeaderWorkerSet_llama_20261119-060000"),
    sha("c1_team_Pod_alone_20261119-060000"),
]


@WHEEL
def test_the_original_makes_one_id_of_all_ranks_and_restarts() -> None:
    assert [found for found, _ in of_original(pods())] == EXPECTED


@WHEEL
def test_the_original_reads_all_that_we_write() -> None:
    """Nothing of what it looks for is missing or of another form."""
    ((_, details),) = of_original(pods()[3:4])
    assert details == {
        "id": "tune",
        "kind": "RayJob",
        "cluster": CLUSTER,
        "namespace": "team",
        "parent_workload": "",
        "creation-timestamp": "2026-11-19T06:00:00Z",
        "labels": None,
    }


def test_our_drop_in_makes_the_same_ids() -> None:
    found = [identify_workload("any", None, each) for each in pods()]
    assert [each.run for each in found] == EXPECTED
    assert {each.orchestrator for each in found} == {"GKE"}
