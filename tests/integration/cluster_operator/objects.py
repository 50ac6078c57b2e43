"""Objects of the trials: a workload, its pods as the webhook leaves them, captures."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.cluster.server import Cluster

Thing = dict[str, Any]
NAMESPACE: Final = "team"


def job(cluster: Cluster, name: str, namespace: str = NAMESPACE) -> Thing:
    container = {"name": "main", "image": "training:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return cluster.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"template": template},
        }
    )


def told_of(workload: Thing) -> str:
    """As the webhook writes it, on the pod and into its environment."""
    about = workload["metadata"]
    return json.dumps(
        {
            "apiVersion": workload["apiVersion"],
            "kind": workload["kind"],
            "plural": f"{workload['kind'].lower()}s",
            "name": about["name"],
            "uid": about["uid"],
            "created": about["creationTimestamp"],
        }
    )


def inside(workload: Thing, pod: Thing | None = None) -> dict[str, str]:
    """What the webhook puts into the environment of its pods."""
    told = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "POD_NAMESPACE": workload["metadata"]["namespace"],
        "RUNWATCH_WORKLOAD": told_of(workload),
    }
    if pod is not None:
        about = pod["metadata"]
        told |= {"POD_NAME": about["name"], "RUNWATCH_POD_UID": about["uid"]}
    return told


def pod(
    cluster: Cluster,
    name: str,
    workload: Thing | None = None,
    *,
    namespace: str = NAMESPACE,
    phase: str = "Running",
    ip: str = "127.0.0.1",
) -> Thing:
    """With a workload it is watched."""
    about: Thing = {"name": name, "namespace": namespace}
    if workload is not None:
        about["labels"] = {"runwatch.dev/watched": "true"}
        about["annotations"] = {"runwatch.dev/workload": told_of(workload)}
    container = {"name": "main", "image": "training:1"}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": about,
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
    )
    return cluster.status("pod", name, {"phase": phase, "podIP": ip}, namespace)


def capture(
    cluster: Cluster, name: str, run: str, *, namespace: str = NAMESPACE, **spec: Any
) -> Thing:
    return cluster.create(
        {
            "apiVersion": "runwatch.dev/v1alpha1",
            "kind": "Capture",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"run": run, **(spec or {"durationSeconds": 1})},
        }
    )


def connection(cluster: Cluster, name: str, namespace: str = NAMESPACE, /, **trigger: Any) -> Thing:
    wanted = {
        "capturePort": 9999,
        "durationSeconds": 1,
        "podName": "llama-0",
        "podNamespace": NAMESPACE,
        "profiler": "google_cloud_mldiagnostics",
    } | trigger
    return cluster.create(
        {
            "apiVersion": "diagon.gke.io/v1alpha1",
            "kind": "MLDiagnosticsConnection",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"triggerCapture": wanted},
        }
    )
