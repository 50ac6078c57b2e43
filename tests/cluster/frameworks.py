"""What the controllers of JobSet, Ray and LeaderWorkerSet make of their workloads.

Each yields what it makes first: RayClusters and Jobs, from which others go on, or pods.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.cluster.making import field, made, pod_of, tell, values

Thing = dict[str, Any]
_GROUP: Final = "leaderworkerset.sigs.k8s.io"


# ── JobSet ────────────────────────────────────────────────────────────────────────────────────


def _job_set(jobs: Thing) -> Iterator[Thing]:
    name, spec = jobs["metadata"]["name"], jobs["spec"]
    total, number = sum(each["replicas"] for each in spec["replicatedJobs"]), 0
    for replicated in spec["replicatedJobs"]:
        for index in range(replicated["replicas"]):
            job = f"{name}-{replicated['name']}-{index}"
            place = f"{jobs['metadata']['namespace']}/{job}"
            its = {
                "global-replicas": str(total),
                "job-global-index": str(number),
                "job-index": str(index),
                "job-key": hashlib.sha1(place.encode(), usedforsecurity=False).hexdigest(),
                "jobset-name": name,
                "jobset-uid": jobs["metadata"]["uid"],
                "replicatedjob-name": replicated["name"],
                "replicatedjob-replicas": str(replicated["replicas"]),
                "restart-attempt": "0",
            }
            number += 1
            labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in its.items()}
            of_job = copy.deepcopy(replicated["template"]["spec"])
            about = of_job["template"].setdefault("metadata", {})
            about["labels"] = {**(about.get("labels") or {}), **labels}
            about["annotations"] = {**(about.get("annotations") or {}), **labels}
            of_job["template"]["spec"]["subdomain"] = name
            inner = {"name": job, "labels": dict(labels), "annotations": dict(labels)}
            yield made("batch/v1", "Job", inner, of_job)


# ── Ray ───────────────────────────────────────────────────────────────────────────────────────


def _ray_cluster(cluster: Thing) -> Iterator[Thing]:
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    spec, head = cluster["spec"], f"{cluster['metadata']['name']}-head-svc"
    first = _ray_pod(spec["headGroupSpec"]["template"], name, "headgroup", "head", f"{name}-head")
    tell(first, values(RAY_ADDRESS="127.0.0.1:6379"))
    yield first
    for group in spec["workerGroupSpecs"]:
        for number in range(group["replicas"]):
            start = f"{name}-{group['groupName']}-worker-{number}"
            pod = _ray_pod(group["template"], name, group["groupName"], "worker", start)
            service = f"{head}.{namespace}.svc.cluster.local"
            tell(pod, values(FQ_RAY_IP=service, RAY_IP=head, RAY_ADDRESS=f"{service}:6379"))
            wait = {"name": "wait-gcs-ready", "image": pod["spec"]["containers"][0]["image"]}
            wait |= {"command": ["/bin/bash", "-lc", "--"], "args": [f"ray health-check {service}"]}
            pod["spec"]["initContainers"] = [wait]
            yield pod


def _ray_pod(template: Thing, cluster: str, group: str, kind: str, name: str) -> Thing:
    labels = {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": cluster,
        "ray.io/group": group,
        "ray.io/identifier": f"{cluster}-{kind}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": kind,
    }
    pod = pod_of(template, labels, {"ray.io/ft-enabled": "false"}, name=name)
    head = " --head --dashboard-host=0.0.0.0" if kind == "head" else ""
    start = f"ray start{head} --block --num-cpus=1"
    shared = {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    pod["spec"].setdefault("volumes", []).append(shared)
    ray: Thing = pod["spec"]["containers"][0]
    ray |= {"command": ["/bin/bash", "-lc", "--"], "args": [f"ulimit -n 65536; {start} "]}
    ray.setdefault("volumeMounts", []).append({"name": "shared-mem", "mountPath": "/dev/shm"})
    tell(
        pod,
        [
            field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
            field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
            field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
            *values(KUBERAY_GEN_RAY_START_CMD=start, RAY_PORT="6379", REDIS_PASSWORD=""),
        ],
    )
    return pod


def _ray_job(job: Thing) -> Iterator[Thing]:
    """Its cluster, and the Job that submits its program."""
    name, cluster = job["metadata"]["name"], f"{job['metadata']['name']}-q7xkd"
    yield made(
        "ray.io/v1",
        "RayCluster",
        _originated(cluster, name, "RayJob"),
        job["spec"]["rayClusterSpec"],
    )
    submit: Thing = {"name": "ray-job-submitter", "image": "rayproject/ray:2.40.0"}
    address = f"{cluster}-head-svc.{job['metadata']['namespace']}.svc.cluster.local:8265"
    submit |= {"command": ["/bin/bash", "-c", "--"], "args": [f"ray job submit -- {name}"]}
    told = values(RAY_DASHBOARD_ADDRESS=address, RAY_JOB_SUBMISSION_ID=f"{name}-m2f9w")
    spec: Thing = {"containers": [{**submit, "env": told}], "restartPolicy": "Never"}
    of_job: Thing = {"backoffLimit": 2, "completions": 1, "parallelism": 1}
    of_job |= {"completionMode": "NonIndexed", "template": {"metadata": {}, "spec": spec}}
    yield made("batch/v1", "Job", _originated(name, name, "RayJob"), of_job)


def _ray_service(service: Thing) -> Iterator[Thing]:
    name = service["metadata"]["name"]
    about = _originated(f"{name}-z4p6t", name, "RayService")
    yield made("ray.io/v1", "RayCluster", about, service["spec"]["rayClusterConfig"])


def _originated(name: str, by: str, kind: str) -> Thing:
    labels = {"ray.io/originated-from-cr-name": by, "ray.io/originated-from-crd": kind}
    return {"name": name, "labels": labels}


# ── LeaderWorkerSet ───────────────────────────────────────────────────────────────────────────


def _leader_worker_set(groups: Thing) -> Iterator[Thing]:
    """A StatefulSet of leaders."""
    name, spec = groups["metadata"]["name"], groups["spec"]
    its = {f"{_GROUP}/name": name, f"{_GROUP}/template-revision-hash": "5c9d7b8f6"}
    size = str(spec["leaderWorkerTemplate"]["size"])
    yield _members(
        name, spec["leaderWorkerTemplate"]["workerTemplate"], spec["replicas"], 0,
        {**its, f"{_GROUP}/worker-index": "0"}, {f"{_GROUP}/size": size}, its, name,
    )  # fmt: skip


def _members(
    name: str, template: Thing, count: int, first: int, labels: Mapping[str, str],
    notes: Mapping[str, str], own: Mapping[str, str], service: str,
) -> Thing:  # fmt: skip
    inner = copy.deepcopy(template)
    about = inner.setdefault("metadata", {})
    about["labels"] = {**(about.get("labels") or {}), **labels}
    about["annotations"] = {**(about.get("annotations") or {}), **notes}
    spec = {
        "replicas": count,
        "ordinals": {"start": first},
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": dict(labels)},
        "serviceName": service,
        "template": inner,
    }
    return made("apps/v1", "StatefulSet", {"name": name, "labels": dict(own)}, spec)


def of_group(pod: Thing, namespace: str) -> Thing:
    """As LeaderWorkerSet's own webhook leaves a StatefulSet's pod, if it is one of a group."""
    labels = pod["metadata"]["labels"]
    if f"{_GROUP}/name" not in labels:
        return pod
    name, notes = pod["metadata"]["name"], pod["metadata"]["annotations"]
    if labels.get(f"{_GROUP}/worker-index") == "0":
        labels[f"{_GROUP}/group-index"] = name.rpartition("-")[2]
        leader = name
    else:
        labels[f"{_GROUP}/worker-index"] = name.rpartition("-")[2]
        leader = notes[f"{_GROUP}/leader-name"]
    told = values(LWS_LEADER_ADDRESS=f"{leader}.{labels[f'{_GROUP}/name']}.{namespace}")
    told += values(LWS_GROUP_SIZE=notes[f"{_GROUP}/size"])
    told.append(field("LWS_WORKER_INDEX", f"metadata.labels['{_GROUP}/worker-index']"))
    for each in pod["spec"]["containers"]:
        each["env"] = [*copy.deepcopy(told), *each.get("env", ())]
    return pod


def _leader(pod: Thing) -> Iterator[Thing]:
    """A leader's workers: a StatefulSet that is the pod's."""
    about = pod["metadata"]
    labels = about.get("labels") or {}
    if labels.get(f"{_GROUP}/worker-index") != "0":
        return
    size = int(about["annotations"][f"{_GROUP}/size"])
    its = {
        key: labels[f"{_GROUP}/{key}"] for key in ("name", "group-index", "template-revision-hash")
    }
    named = {f"{_GROUP}/{key}": value for key, value in its.items()}
    notes = {f"{_GROUP}/size": str(size), f"{_GROUP}/leader-name": about["name"]}
    template = {"metadata": {}, "spec": _as_written(pod["spec"])}
    yield _members(about["name"], template, size - 1, 1, named, notes, named, its["name"])


def _as_written(spec: Thing) -> Thing:
    """A worker's template is here its leader's: image and command, without what webhooks added."""
    kept = ("name", "image", "command", "args")
    return {
        "containers": [
            {key: each[key] for key in kept if key in each} for each in spec["containers"]
        ]
    }


CONTROLLERS: Final[Mapping[str, Callable[[Thing], Iterator[Thing]]]] = {
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    "Pod": _leader,
    "RayCluster": _ray_cluster,
    "RayJob": _ray_job,
    "RayService": _ray_service,
}
