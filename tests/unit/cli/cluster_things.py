"""Objects of a cluster, as kubectl prints them, and a cluster in which all is well."""

from __future__ import annotations

import base64
import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runwatch.cli.status.cluster.told import Told
from runwatch.kube import moment_ns, written

NOW_NS: Final = moment_ns("2026-11-19T12:00:00Z") or 0
Thing = dict[str, Any]


def ago(seconds: float) -> str:
    return written(NOW_NS - round(seconds * 1e9))


@functools.cache
def bundle(days: float) -> str:
    """An authority that is good for so long, as a caBundle has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runwatch-webhook")])
    now = datetime.datetime.fromtimestamp(NOW_NS / 1e9, datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def thing(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    owner: Thing | None = None,
    age: float = 86_400,
    api: str = "v1",
    **parts: Any,
) -> Thing:
    about: Thing = {
        "name": name,
        "uid": f"{kind}-{namespace}-{name}",
        "creationTimestamp": ago(age),
        "labels": dict(labels or {}),
        "annotations": dict(notes or {}),
    }
    if namespace:
        about["namespace"] = namespace
    if owner is not None:
        said = owner["metadata"]
        about["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": said["name"],
                "uid": said["uid"],
                "controller": True,
            }
        ]
    return {"apiVersion": api, "kind": kind, "metadata": about, **parts}


def ours(kind: str, component: str, **parts: Any) -> Thing:
    labels = {
        "app.kubernetes.io/part-of": "runwatch",
        "app.kubernetes.io/name": "runwatch",
        "app.kubernetes.io/instance": "rw",
        "app.kubernetes.io/component": component,
        "helm.sh/chart": "runwatch-0.1.0",
    }
    name = parts.pop("name", f"rw-{component}")
    return thing(kind, name, "runwatch", labels=labels | parts.pop("labels", {}), **parts)


def pod(name: str, namespace: str = "ml", *, running: float | None = 3_600, **parts: Any) -> Thing:
    """`running`: for so many seconds; None: not yet."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    if running is not None:
        state = {"running": {"startedAt": ago(running)}}
    ready = "True" if running is not None else "False"
    status = {
        "phase": "Running" if running is not None else "Pending",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "main", "state": state}],
    }
    spec = {"nodeName": parts.pop("node", "gpu-1"), "containers": [{"name": "main", "env": []}]}
    spec |= parts.pop("spec", {})
    return thing(
        "Pod", name, namespace, spec=spec, status=status | parts.pop("status", {}), **parts
    )


def agent(node: str, **parts: Any) -> Thing:
    made = pod(f"rw-agent-{node}", "runwatch", node=node, **parts)
    made["metadata"]["labels"] |= ours("Pod", "agent")["metadata"]["labels"]
    return made


def node(name: str, *, gpus: int = 8, taints: Any = (), ready: str = "True", **parts: Any) -> Thing:
    has = {"cpu": "96"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    status = {
        "allocatable": has,
        "conditions": [
            {"type": "Ready", "status": ready, "reason": "KubeletStopped",
             "lastTransitionTime": ago(600)},
        ],
    }  # fmt: skip
    labels = {"nvidia.com/gpu.present": "true"} if gpus else {}
    return thing("Node", name, labels=labels, spec={"taints": list(taints)}, status=status, **parts)


def webhook(ca: str | None = None, *, age: float = 86_400, policy: str = "Ignore") -> Thing:
    hook = {
        "name": "pods.watch.runwatch.dev",
        "failurePolicy": policy,
        "clientConfig": {"caBundle": bundle(300) if ca is None else ca},
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn",
                 "values": ["kube-system", "runwatch"]},
                {"key": "runwatch.dev/exempt", "operator": "NotIn", "values": ["true"]},
            ]
        },
        "objectSelector": {
            "matchExpressions": [
                {"key": "runwatch.dev/watch", "operator": "NotIn", "values": ["false"]},
            ]
        },
    }  # fmt: skip
    made = ours("MutatingWebhookConfiguration", "webhook", webhooks=[hook], age=age)
    del made["metadata"]["namespace"]
    return made


def space(name: str, **labels: str) -> Thing:
    said = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return thing("Namespace", name, labels={"kubernetes.io/metadata.name": name} | said)


def labelled(made: Thing, key: str, value: str, *, seconds_ago: float | None = None) -> Thing:
    """`seconds_ago`: when it was set, as managedFields have it."""
    made["metadata"]["labels"][key] = value
    if seconds_ago is not None:
        made["metadata"]["managedFields"] = [
            {
                "manager": "kubectl-label",
                "time": ago(seconds_ago),
                "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {}}}},
            }
        ]
    return made


def injected(made: Thing, said: str = "v1 node") -> Thing:
    made["metadata"]["labels"]["runwatch.dev/watched"] = "true"
    made["metadata"]["annotations"]["runwatch.dev/injected"] = said
    return made


def healthy() -> list[Thing]:
    """A release, a node with GPUs and its agent, one without, and a watched Job."""
    job = labelled(thing("Job", "llama", "ml", api="batch/v1"), "runwatch.dev/watch", "true")
    return [
        ours("StatefulSet", "head", spec={"replicas": 1}, status={"readyReplicas": 1}),
        ours("Pod", "head", status={"conditions": [{"type": "Ready", "status": "True"}]}),
        ours("Deployment", "webhook", spec=_webhook_spec(), status={"readyReplicas": 2}),
        ours("Deployment", "operator", spec={"replicas": 2}, status={"readyReplicas": 2}),
        ours("DaemonSet", "agent", spec=_agent_spec(), status=_counts(1)),
        webhook(),
        thing("Lease", "runwatch-operator", "runwatch", spec={
            "holderIdentity": "rw-operator-1", "leaseDurationSeconds": 15,
            "acquireTime": ago(3_600), "renewTime": ago(3),
        }),
        node("gpu-1"), node("cpu-1", gpus=0), agent("gpu-1"),
        space("ml"), space("runwatch"), space("kube-system"),
        job,
        injected(pod("llama-0", owner=job)),
        pod("nginx"),
        thing("Run", "llama", "ml", api="runwatch.dev/v1alpha1", owner=job),
    ]  # fmt: skip


def _webhook_spec() -> Thing:
    env = [{"name": "RUNWATCH_HEAD", "value": "http://rw-head.runwatch.svc:8090"}]
    return {"replicas": 2, "template": {"spec": {"containers": [{"name": "webhook", "env": env}]}}}


def _agent_spec() -> Thing:
    marks = ("nvidia.com/gpu.present", "runwatch.dev/agent")
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]} for key in marks
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return {"template": {"spec": {"affinity": affinity, "tolerations": tolerations}}}


def _counts(count: int) -> Thing:
    return {"desiredNumberScheduled": count, "currentNumberScheduled": count, "numberReady": count}


def told(
    things: list[Thing],
    change: Callable[[Thing], Thing | None] = lambda each: each,
    *,
    refused: Mapping[str, str] | None = None,
) -> Told:
    """Of these; `change` makes something else of one, or leaves it out."""
    by_kind: dict[str, list[Thing]] = {}
    for each in things:
        if (made := change(each)) is not None:
            by_kind.setdefault(made["kind"], []).append(made)
    runs = {
        owner["uid"]
        for run in by_kind.get("Run", ())
        for owner in run["metadata"].get("ownerReferences", ())
    }
    return Told(NOW_NS, by_kind, refused or {}, frozenset(runs))


def without(*, kind: str, component: str = "") -> Callable[[Thing], Thing | None]:
    def change(each: Thing) -> Thing | None:
        its = each["metadata"]["labels"].get("app.kubernetes.io/component", "")
        return None if each["kind"] == kind and its == component else each

    return change
