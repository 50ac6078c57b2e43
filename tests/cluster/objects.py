"""Objects as people write them: one of each kind of workload, in its documented form.

    cluster.create(objects.job_set("gpt", labels={"runwatch.dev/watch": "true"}), "team")

What their controllers make of them is in `controllers.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

Thing = dict[str, Any]
Words = Mapping[str, str]

IMAGE: Final = "registry.example/trainer:7"
COMMAND: Final = ("python", "train.py")


def container(
    name: str = "trainer",
    *,
    command: Sequence[str] = COMMAND,
    env: Words | None = None,
    image: str = IMAGE,
    **more: Any,
) -> Thing:
    made: Thing = {"name": name, "image": image}
    if command:
        made["command"] = list(command)
    if env:
        made["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return made | copy.deepcopy(more)


def pod_spec(*containers: Thing, **more: Any) -> Thing:
    return {"containers": [*(containers or (container(),))], **copy.deepcopy(more)}


def template(
    spec: Thing | None = None, *, labels: Words | None = None, notes: Words | None = None
) -> Thing:
    about: Thing = {}
    if labels:
        about["labels"] = dict(labels)
    if notes:
        about["annotations"] = dict(notes)
    return {"metadata": about, "spec": copy.deepcopy(spec) if spec else pod_spec()}


def thing(
    api_version: str,
    kind: str,
    name: str,
    spec: Thing,
    labels: Words | None = None,
    notes: Words | None = None,
) -> Thing:
    about: Thing = {"name": name, "labels": dict(labels or {}), "annotations": dict(notes or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec}


def pod(
    name: str = "trainer",
    spec: Thing | None = None,
    *,
    labels: Words | None = None,
    notes: Words | None = None,
) -> Thing:
    return thing("v1", "Pod", name, spec or pod_spec(restartPolicy="Never"), labels, notes)


def job(
    name: str, spec: Thing | None = None, *, count: int = 2, indexed: bool = True, **about: Any
) -> Thing:
    made = template(spec or pod_spec(restartPolicy="Never"))
    of_job: Thing = {"completions": count, "parallelism": count, "backoffLimit": 0}
    of_job["completionMode"] = "Indexed" if indexed else "NonIndexed"
    return thing("batch/v1", "Job", name, {**of_job, "template": made}, **about)


def cron_job(name: str, spec: Thing | None = None, **about: Any) -> Thing:
    inner = job(name, spec, count=1, indexed=False)["spec"]
    of_it = {"schedule": "0 3 * * *", "jobTemplate": {"metadata": {}, "spec": inner}}
    return thing("batch/v1", "CronJob", name, of_it, **about)


def job_set(
    name: str, spec: Thing | None = None, *, jobs: int = 1, count: int = 2, **about: Any
) -> Thing:
    """One replicated job `workers`."""
    workers = {
        "name": "workers",
        "replicas": jobs,
        "template": {"spec": job(name, spec, count=count)["spec"]},
    }
    of_it = {"network": {"enableDNSHostnames": True}, "replicatedJobs": [workers]}
    return thing("jobset.x-k8s.io/v1alpha2", "JobSet", name, of_it, **about)


def ray_cluster(name: str, spec: Thing | None = None, *, count: int = 1, **about: Any) -> Thing:
    return thing("ray.io/v1", "RayCluster", name, _ray(spec, count), **about)


def ray_job(name: str, spec: Thing | None = None, *, count: int = 1, **about: Any) -> Thing:
    of_it = {
        "entrypoint": "python train.py",
        "submissionMode": "K8sJobMode",
        "rayClusterSpec": _ray(spec, count),
    }
    return thing("ray.io/v1", "RayJob", name, of_it, **about)


def ray_service(name: str, spec: Thing | None = None, *, count: int = 1, **about: Any) -> Thing:
    of_it = {"serveConfigV2": "applications: []", "rayClusterConfig": _ray(spec, count)}
    return thing("ray.io/v1", "RayService", name, of_it, **about)


def _ray(spec: Thing | None, count: int) -> Thing:
    head = pod_spec(container("ray-head", command=()))
    worker = spec or pod_spec(container("ray-worker", command=()))
    group = {"groupName": "workers", "replicas": count, "rayStartParams": {}}
    return {
        "rayVersion": "2.40.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template(head)},
        "workerGroupSpecs": [{**group, "template": template(worker)}],
    }


def leader_worker_set(
    name: str, spec: Thing | None = None, *, groups: int = 1, size: int = 2, **about: Any
) -> Thing:
    group = {"size": size, "workerTemplate": template(spec)}
    return thing(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        name,
        {"replicas": groups, "leaderWorkerTemplate": group},
        **about,
    )


def py_torch_job(name: str, spec: Thing | None = None, *, count: int = 1, **about: Any) -> Thing:
    made = template(spec or pod_spec(container("pytorch")))
    replicas = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": made},
        "Worker": {"replicas": count, "restartPolicy": "OnFailure", "template": made},
    }
    of_it = {"nprocPerNode": "auto", "pytorchReplicaSpecs": replicas}
    return thing("kubeflow.org/v1", "PyTorchJob", name, of_it, **about)


def mpi_job(name: str, spec: Thing | None = None, *, count: int = 2, **about: Any) -> Thing:
    launcher = pod_spec(container("mpi-launcher", command=("mpirun", "-n", "2", "python", "t.py")))
    workers = spec or pod_spec(container("mpi-worker", command=()))
    replicas = {
        "Launcher": {"replicas": 1, "template": template(launcher)},
        "Worker": {"replicas": count, "template": template(workers)},
    }
    of_it = {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas}
    return thing("kubeflow.org/v2beta1", "MPIJob", name, of_it, **about)


def train_job(name: str, *, count: int = 2, **about: Any) -> Thing:
    of_it = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"image": IMAGE, "command": list(COMMAND), "numNodes": count},
    }
    return thing("trainer.kubeflow.org/v1alpha1", "TrainJob", name, of_it, **about)


def stateful_set(name: str, spec: Thing | None = None, *, count: int = 2, **about: Any) -> Thing:
    return thing("apps/v1", "StatefulSet", name, _replicated(name, spec, count), **about)


def deployment(name: str, spec: Thing | None = None, *, count: int = 2, **about: Any) -> Thing:
    return thing("apps/v1", "Deployment", name, _replicated(name, spec, count), **about)


def _replicated(name: str, spec: Thing | None, count: int) -> Thing:
    labels = {"app": name}
    return {
        "replicas": count,
        "selector": {"matchLabels": labels},
        "template": template(spec, labels=labels),
    }
