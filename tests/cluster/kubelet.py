"""Plays scheduler, kubelet and node controller: statuses in the form in which those write them.

`Played` is one pod, changed in place:

    pod = Played(pod_named("llama-0"), Time())
    pod.scheduled("node-1"); pod.accepted(); pod.starts(); pod.ends(exit_code=1)

`Kubelet` does the same to a pod of a `Cluster`, by the name of the deed, and keeps nodes:

    kubelet = Kubelet(cluster, "team", time)
    kubelet.node("node-1"); kubelet.does("llama-0", "scheduled", "node-1")
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tests.cluster.hands import Hands

Thing = dict[str, Any]

UNSCHEDULABLE: Final = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: "
    "4 No preemption victims found for incoming pod."
)
PRESSURE: Final = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 61Mi. Container "
    "train was using 8Gi, request is 0, has larger consumption of memory. "
)
PULL_FAILED: Final = "rpc error: code = NotFound desc = failed to pull and unpack image: not found"
SILENT: Final = "Kubelet stopped posting node status."


@dataclass
class Time:
    """Seconds since the epoch; the test moves them."""

    seconds: float = 1_780_000_000

    def __call__(self) -> float:
        return self.seconds

    def passes(self, seconds: float) -> None:
        self.seconds += seconds

    @property
    def ns(self) -> int:
        return int(self.seconds) * 1_000_000_000

    def written(self, later: float = 0) -> str:
        moment = datetime.fromtimestamp(int(self.seconds + later), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def watched(workload: str = "llama", uid: str = "w-1", kind: str = "Job") -> dict[str, Thing]:
    """What the webhook writes on a pod."""
    of = {"apiVersion": "batch/v1", "kind": kind, "plural": f"{kind.lower()}s"}
    return {
        "labels": {"runwatch.dev/watched": "true"},
        "annotations": {"runwatch.dev/workload": json.dumps({**of, "name": workload, "uid": uid})},
    }


def pod_named(
    name: str,
    *,
    containers: Sequence[str] = ("train",),
    init: Sequence[str] = (),
    sidecars: Sequence[str] = (),
    restart_policy: str = "Never",
    marks: Mapping[str, Thing] | None = None,
) -> Thing:
    """As somebody creates it.  Native sidecars are init containers that are always restarted."""
    image = "registry.example/llama:1"
    before = [{"name": each, "image": image} for each in init]
    before += [{"name": each, "image": image, "restartPolicy": "Always"} for each in sidecars]
    spec: Thing = {
        "restartPolicy": restart_policy,
        "containers": [{"name": each, "image": image} for each in containers],
    }
    if before:
        spec["initContainers"] = before
    meta = {"name": name, "namespace": "team", **copy.deepcopy(dict(marks or watched()))}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


class Played:
    def __init__(self, thing: Thing, time: Time) -> None:
        self.thing, self.time = thing, time
        meta = thing["metadata"]
        meta.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_DNS, meta["name"])))
        meta.setdefault("creationTimestamp", time.written())
        thing["status"] = thing.get("status") or {}
        self.status.setdefault("phase", "Pending")

    @property
    def uid(self) -> str:
        return str(self.thing["metadata"]["uid"])

    @property
    def status(self) -> Thing:
        return self.thing["status"]  # type: ignore[no-any-return]

    def condition(self, kind: str, is_true: bool, reason: str = "", message: str = "") -> None:
        """Its time is when its status changed last."""
        status = "True" if is_true else "False"
        conditions = self.status.setdefault("conditions", [])
        found = next((each for each in conditions if each["type"] == kind), None)
        if found is None:
            conditions.append(found := {"type": kind, "lastProbeTime": None})
        if found.get("status") != status:
            found["lastTransitionTime"] = self.time.written()
        found["status"] = status
        for key, value in (("reason", reason), ("message", message)):
            found.pop(key, None)
            if value:
                found[key] = value

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────

    def unschedulable(self, message: str = UNSCHEDULABLE, reason: str = "Unschedulable") -> None:
        self.condition("PodScheduled", False, reason, message)

    def scheduled(self, node: str = "node-1") -> None:
        self.thing["spec"]["nodeName"] = node
        self.condition("PodScheduled", True)

    def preempted(self) -> None:
        why = "default-scheduler: preempting to accommodate a higher priority pod"
        self.condition("DisruptionTarget", True, "PreemptionByScheduler", why)

    # ── the kubelet ───────────────────────────────────────────────────────────────────────────

    def accepted(self) -> None:
        """It has seen the pod, and its volumes and images come."""
        spec = self.thing["spec"]
        self.status["startTime"] = self.time.written()
        self.condition("PodReadyToStartContainers", False)
        has_init = bool(spec.get("initContainers"))
        self.condition("Initialized", not has_init)
        self._unready([each["name"] for each in spec["containers"]])
        reason = "PodInitializing" if has_init else "ContainerCreating"
        for field, listed in (
            ("initContainerStatuses", spec.get("initContainers") or ()),
            ("containerStatuses", spec["containers"]),
        ):
            if listed:
                self.status[field] = [_waiting(each["name"], reason) for each in listed]

    def refused(self, reason: str, message: str) -> None:
        """It does not fit the node after all: nothing of it ever ran."""
        self.status.update({"phase": "Failed", "reason": reason, "message": message})
        self.status["startTime"] = self.time.written()

    def image(self, reason: str, message: str, name: str = "") -> None:
        self._of(name)["state"] = {"waiting": {"reason": reason, "message": message}}

    def starts(self, name: str = "") -> None:
        status = self._of(name)
        status["state"] = {"running": {"startedAt": self.time.written()}}
        status |= {"started": True, "ready": True}
        self._initialized()
        main = self.status["containerStatuses"]
        if any("running" in each["state"] for each in main):
            self.status["phase"] = "Running"
        if all("running" in each["state"] for each in main):
            self.condition("ContainersReady", True)
            self.condition("Ready", True)

    def ends(
        self, name: str = "", exit_code: int = 0, reason: str = "", signal: int | None = None
    ) -> None:
        status = self._of(name)
        began = status["state"].get("running", {}).get("startedAt")
        ended = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed")}
        ended |= {"startedAt": began, "finishedAt": self.time.written()}
        if signal:
            ended["signal"] = signal
        status["state"] = {"terminated": {**ended, "containerID": "containerd://1"}}
        status |= {"started": False, "ready": False}
        self._initialized()
        if status in self.status["containerStatuses"]:
            self._unready([status["name"]])

    def waits_again(self, name: str = "", reason: str = "CrashLoopBackOff") -> None:
        """Before it is started again: its last life is in `lastState`, and not counted yet."""
        status = self._of(name)
        status["lastState"] = status["state"]
        told = {"CrashLoopBackOff": f"back-off 10s restarting failed container={status['name']}"}
        status["state"] = {"waiting": {"reason": reason, "message": told.get(reason, "")}}

    def restarts(self, name: str = "") -> None:
        status = self._of(name)
        if "terminated" in status["state"]:
            status["lastState"] = status["state"]
        status["restartCount"] += 1
        self.starts(name)

    def over(self, phase: str) -> None:
        self.status["phase"] = phase
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        for condition in ("Ready", "ContainersReady"):
            self.condition(condition, False, reason)

    def evicted(self, message: str = PRESSURE) -> None:
        """Its node is short of something: the kubelet ends it, without asking."""
        self.condition("DisruptionTarget", True, "TerminationByKubelet", message)
        self.over("Failed")
        self.status.update({"reason": "Evicted", "message": message})

    # ── who deletes it ────────────────────────────────────────────────────────────────────────

    def evicted_by_api(self) -> None:
        """As `kubectl drain` asks for it."""
        self.condition("DisruptionTarget", True, "EvictionByEvictionAPI", "Eviction API: evicting")

    def tainted(self) -> None:
        why = "Taint manager: deleting due to NoExecute taint"
        self.condition("DisruptionTarget", True, "DeletionByTaintManager", why)

    def collected(self) -> None:
        """Its node is no object any more."""
        why = "PodGC: node no longer exists"
        self.condition("DisruptionTarget", True, "DeletionByPodGC", why)
        self.status["phase"] = "Failed"

    def deleted(self, grace: int = 30) -> None:
        """Somebody asked for it; the time is when it must be over."""
        meta = self.thing["metadata"]
        meta["deletionTimestamp"] = self.time.written(grace)
        meta["deletionGracePeriodSeconds"] = grace

    def unheard(self) -> None:
        """The node controller: its node is silent."""
        self.condition("Ready", False)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _of(self, name: str) -> Thing:
        listed = [*self.status["containerStatuses"], *self.status.get("initContainerStatuses", ())]
        return next(each for each in listed if not name or each["name"] == name)

    def _unready(self, names: Sequence[str]) -> None:
        message = f"containers with unready status: [{' '.join(names)}]"
        for condition in ("Ready", "ContainersReady"):
            self.condition(condition, False, "ContainersNotReady", message)

    def _initialized(self) -> None:
        states = [each["state"] for each in self.status.get("initContainerStatuses", ())]
        sidecars = [
            each.get("restartPolicy") for each in self.thing["spec"].get("initContainers", ())
        ]
        if all(
            state.get("terminated", {}).get("exitCode") == 0 or (always and "running" in state)
            for state, always in zip(states, sidecars, strict=True)
        ):
            self.condition("Initialized", True)


def _waiting(name: str, reason: str) -> Thing:
    return {
        "name": name,
        "image": "registry.example/llama:1",
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
    }


def event_about(
    pod: Thing, reason: str, message: str, time: Time, *, container: str = "", warning: bool = True
) -> Thing:
    """An Event of the core, as the kubelet and the scheduler write them."""
    meta = pod["metadata"]
    of = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
    of["uid"] = meta["uid"]
    if container:
        of["fieldPath"] = f"spec.containers{{{container}}}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{uuid.uuid4().hex[:16]}",
            "namespace": meta["namespace"],
            "creationTimestamp": time.written(),
        },
        "involvedObject": of,
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": time.written(),
        "lastTimestamp": time.written(),
        "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
    }


def node_named(name: str, time: Time, status: str = "True") -> Thing:
    """`status` of its condition Ready: "Unknown" when it is not heard of."""
    words = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime network not ready"),
        "Unknown": ("NodeStatusUnknown", SILENT),
    }
    reason, message = words[status]
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    ready |= {"lastHeartbeatTime": time.written(), "lastTransitionTime": time.written()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [ready]},
    }


class Kubelet:
    """The same in a cluster, whose clock is `time`."""

    def __init__(self, cluster: Hands, namespace: str, time: Time) -> None:
        self.cluster, self.namespace, self.time = cluster, namespace, time

    def creates(self, thing: Thing) -> Thing:
        return self.cluster.create(thing, self.namespace)

    def does(self, name: str, deed: str, *arguments: Any, **more: Any) -> Thing:
        """A deed of `Played`, past what an update may change: the scheduler binds a pod, and the
        server itself marks what is deleted."""

        def done() -> Thing:
            stored = self.cluster.storage.get(("", "pods"), self.namespace, name)
            assert stored is not None, f"there is no pod {name}"
            thing = stored.copy()
            getattr(Played(thing, self.time), deed)(*arguments, **more)
            if "deletionTimestamp" in thing["metadata"]:  # until its kubelet is done with it
                thing["metadata"]["finalizers"] = ["tests/kubelet"]
            self.cluster.storage.put(("", "pods"), thing)
            return thing

        return self.cluster._now(done)

    def removes(self, name: str) -> Thing:
        """Its last state.  The kubelet is done with it, or somebody did not wait."""
        thing = self.cluster.get("pod", name, self.namespace)
        if "finalizers" in thing["metadata"]:
            self.cluster.patch("pod", name, {"metadata": {"finalizers": None}}, self.namespace)
        else:
            self.cluster.delete("pod", name, self.namespace)
        return thing

    def node(self, name: str, status: str = "True") -> None:
        self.cluster.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}])
        self.cluster.status("node", name, node_named(name, self.time, status)["status"], "")

    def says(self, pod: Thing, reason: str, message: str, **more: Any) -> Thing:
        """An Event."""
        event = event_about(pod, reason, message, self.time, **more)
        return self.cluster.create(event, self.namespace)
