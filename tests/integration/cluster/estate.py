"""A cluster in which the chart is installed and all is well, as far as `kubectl` can see.

The webhook is a real process; scheduler, kubelet and controllers are played.  The cluster's clock
began two hours ago, and `at` moves it: what is created then has that age.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cluster import objects
from tests.cluster.chart import NAMESPACE
from tests.cluster.controllers import played
from tests.cluster.kubelet import Kubelet, Time
from tests.cluster.server import Cluster
from tests.integration.webhook.site import SERVICE, Site

Thing = dict[str, Any]
WATCH: Final = "runwatch.dev/watch"
HOURS_AGO: Final = 7200.0
_PARTS: Final = (("StatefulSet", "head"), ("Deployment", "webhook"), ("Deployment", "operator"))


class Estate:
    def __init__(self, place: Path) -> None:
        self.began = time.time()
        self.time = Time(self.began - HOURS_AGO)
        self.cluster = Cluster(place / "cluster", clock=self.time)
        self.place = place
        self.site: Site | None = None

    def at(self, seconds_ago: float) -> None:
        """Time only goes forward: what was written stays in order."""
        moment = self.began - seconds_ago
        assert moment >= self.time.seconds
        self.time.seconds = moment

    def install(self, *, start: bool = True) -> None:
        """`start`: with its webhook."""
        self.site = Site(self.place, self.cluster)
        if start:
            self.site.start().ready()

    # ── what the cluster's own controllers do ─────────────────────────────────────────────────

    def all_is_ready(self) -> None:
        """Every part of the release, and an agent on each node that its DaemonSet is for."""
        for kind, component in _PARTS:
            part = self._part(kind, component)
            replicas = part["spec"].get("replicas", 1)
            name = part["metadata"]["name"]
            told = {"replicas": replicas, "readyReplicas": replicas}
            self.cluster.status(kind, name, told, NAMESPACE)
            for number in range(replicas):
                self._pod_of(part, f"{name}-{number}", "gpu-1")
        self.leads()

    def leads(self) -> None:
        """The operator renews its lease."""
        lease = {
            "holderIdentity": "runwatch-operator-0",
            "leaseDurationSeconds": 15,
            "acquireTime": self.time.written(),
            "renewTime": self.time.written(),
        }
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        meta = {"name": "runwatch-operator", "namespace": NAMESPACE}
        self.cluster.apply([{**head, "metadata": meta, "spec": lease}])

    def agents(self, *nodes: str) -> None:
        part = self._part("DaemonSet", "agent")
        for node in nodes:
            self._pod_of(part, f"runwatch-agent-{node}", node)
        counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
        self.cluster.status(
            "DaemonSet", part["metadata"]["name"], dict.fromkeys(counts, len(nodes)), NAMESPACE
        )

    def _part(self, kind: str, component: str) -> Thing:
        selector = f"app.kubernetes.io/component={component}"
        [part] = self.cluster.list(kind, NAMESPACE, selector)
        return part

    def _pod_of(self, part: Thing, name: str, node: str) -> None:
        template = part["spec"]["template"]
        meta = {**template["metadata"], "name": name}
        claimed = [
            {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
            for each in part["spec"].get("volumeClaimTemplates", ())
            for claim in [each["metadata"]["name"]]
        ]
        spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claimed]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self.cluster.create(pod, NAMESPACE)
        self.runs(NAMESPACE, name, node)

    # ── what people have ──────────────────────────────────────────────────────────────────────

    def node(self, name: str, *, gpus: int = 8, **more: Any) -> None:
        marks = {"nvidia.com/gpu.present": "true"} if gpus else {}
        meta = {"name": name, "labels": {**marks, **more.pop("labels", {})}}
        Kubelet(self.cluster, "", self.time).node(name, more.pop("ready", "True"))
        self.cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": meta, **more}])
        if gpus:
            has = {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}
            self.cluster.patch("node", name, has, "", subresource="status")

    def job(
        self, name: str, namespace: str, node: str = "gpu-1", *, count: int = 1, **about: Any
    ) -> list[Thing]:
        """Its pods, which run."""
        pods = played(self.cluster, objects.job(name, count=count, **about), namespace)
        for pod in pods:
            self.runs(namespace, pod["metadata"]["name"], node)
        return pods

    def runs(self, namespace: str, name: str, node: str = "gpu-1") -> None:
        kubelet = Kubelet(self.cluster, namespace, self.time)
        kubelet.does(name, "scheduled", node)
        kubelet.does(name, "accepted")
        pod = self.cluster.get("pod", name, namespace)
        for container in pod["spec"]["containers"]:
            kubelet.does(name, "starts", container["name"])

    def has_run(self, kind: str, name: str, namespace: str) -> None:
        """As the operator writes it."""
        owner = self.cluster.get(kind, name, namespace)
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": name,
            "uid": owner["metadata"]["uid"],
        }
        run = {
            "apiVersion": "runwatch.dev/v1alpha1",
            "kind": "Run",
            "metadata": {"name": name, "ownerReferences": [reference]},
            "spec": {"run": "0" * 32},
        }
        self.cluster.create(run, namespace)

    @contextmanager
    def webhook_away(self) -> Iterator[None]:
        place = self.cluster.services.pop((NAMESPACE, SERVICE))
        yield
        self.cluster.services[NAMESPACE, SERVICE] = place

    def close(self) -> None:
        if self.site is not None:
            self.site.close()
