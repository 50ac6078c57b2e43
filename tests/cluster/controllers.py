"""The controllers that make pods of workloads: names, owners, labels and variables.

    pods = played(cluster, objects.job_set("gpt"), "team")     # as the API server stored them

A Job's pods have no finalizer here: nobody would take it away.  What JobSet, Ray and the
others make of theirs is in `frameworks.py` and `kubeflow.py`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.cluster import frameworks, kubeflow
from tests.cluster.hands import Hands
from tests.cluster.making import field, pod_of, tell

Thing = dict[str, Any]
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def played(cluster: Hands, thing: Thing, namespace: str) -> list[Thing]:
    """Everything below this workload, and its pods in the order in which they were made."""
    stored = cluster.create(thing, namespace)
    made = [stored] if stored["kind"] == "Pod" else []
    for child in children(stored):
        made += played(cluster, owned(child, stored), namespace)
    return made


def children(stored: Thing) -> Iterator[Thing]:
    controller = CONTROLLERS.get(stored["kind"])
    if controller is not None:
        yield from controller(stored)


def owned(child: Thing, by: Thing) -> Thing:
    reference = {
        "apiVersion": by["apiVersion"],
        "kind": by["kind"],
        "name": by["metadata"]["name"],
        "uid": by["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def short_hash(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:10]


# ── those of Kubernetes itself ────────────────────────────────────────────────────────────────


def _job(job: Thing) -> Iterator[Thing]:
    name, uid, spec = job["metadata"]["name"], job["metadata"]["uid"], job["spec"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    if spec.get("completionMode") != "Indexed":
        for _ in range(spec.get("parallelism", 1)):
            yield pod_of(spec["template"], labels, {}, generateName=f"{name}-")
        return
    for index in range(spec["completions"]):
        at = {_INDEX: str(index)}
        pod = pod_of(spec["template"], {**labels, **at}, at, generateName=f"{name}-{index}-")
        pod["spec"]["hostname"] = f"{name}-{index}"
        tell(pod, [field("JOB_COMPLETION_INDEX", f"metadata.labels['{_INDEX}']")])
        yield pod


def _cron_job(cron: Thing) -> Iterator[Thing]:
    """Of one night."""
    inner = copy.deepcopy(cron["spec"]["jobTemplate"])
    about = {
        "name": f"{cron['metadata']['name']}-29394900",
        "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2025-11-21T03:00:00Z"},
    }
    yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": inner["spec"]}


def _stateful_set(stateful: Thing) -> Iterator[Thing]:
    name, spec = stateful["metadata"]["name"], stateful["spec"]
    first = (spec.get("ordinals") or {}).get("start", 0)
    for number in range(first, first + spec["replicas"]):
        labels = {
            "apps.kubernetes.io/pod-index": str(number),
            "controller-revision-hash": f"{name}-{short_hash(spec['template'])}",
            "statefulset.kubernetes.io/pod-name": f"{name}-{number}",
        }
        pod = pod_of(spec["template"], labels, {}, name=f"{name}-{number}")
        pod["spec"]["hostname"] = f"{name}-{number}"
        if spec.get("serviceName"):
            pod["spec"]["subdomain"] = spec["serviceName"]
        yield frameworks.of_group(pod, stateful["metadata"]["namespace"])


def _deployment(deployed: Thing) -> Iterator[Thing]:
    """A ReplicaSet of its template as it is now."""
    spec = copy.deepcopy(deployed["spec"])
    hashed = {"pod-template-hash": short_hash(spec["template"])}
    spec["template"]["metadata"].setdefault("labels", {}).update(hashed)
    about = {
        "name": f"{deployed['metadata']['name']}-{hashed['pod-template-hash']}",
        "labels": dict(spec["template"]["metadata"]["labels"]),
        "annotations": {"deployment.kubernetes.io/revision": "1"},
    }
    spec["selector"] = {"matchLabels": dict(about["labels"])}
    yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": about, "spec": spec}


def _replica_set(replicas: Thing) -> Iterator[Thing]:
    name, spec = replicas["metadata"]["name"], replicas["spec"]
    for _ in range(spec["replicas"]):
        yield pod_of(spec["template"], {}, {}, generateName=f"{name}-")


CONTROLLERS: Final[Mapping[str, Callable[[Thing], Iterator[Thing]]]] = {
    "CronJob": _cron_job,
    "Deployment": _deployment,
    "Job": _job,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
    **frameworks.CONTROLLERS,
    **kubeflow.CONTROLLERS,
}
