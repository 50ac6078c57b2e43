"""What a container is told about itself, in its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from runwatch.k8s.names import WATCHED, WORKLOAD
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.wishes import Wishes
from runwatch.k8s.workloads import Chain, Link
from runwatch.kube import Thing, labels, moment_ns, notes, part, text, written

Variable = dict[str, Any]

POD_NAME: Final = "POD_NAME"
POD_UID: Final = "RUNWATCH_POD_UID"
CONTAINER: Final = "RUNWATCH_CONTAINER"
POD_INDEX: Final = "RUNWATCH_POD_INDEX"
_INDEX: Final = "apps.kubernetes.io/pod-index"
_FIELDS: Final = {
    POD_NAME: "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "NODE_NAME": "spec.nodeName",
    POD_UID: "metadata.uid",
}


def plain(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def literal(text: str) -> str:
    """The kubelet replaces $(NAME) in values: here no dollar means more than itself."""
    return text.replace("$", "$$")


def workload_of(pod: Thing, chain: Chain, now_ns: int) -> Link:
    """The pod itself, if nobody owns it.  It has no uid and no time yet, and perhaps no name; the
    moment is then ours, and the same if the pod is shown to us again."""
    if chain.workload is not None:
        return chain.workload
    about = part(pod, "metadata")
    created = text(about, "creationTimestamp") or _created_before(pod) or written(now_ns)
    labels = {key: its for key, its in part(about, "labels").items() if key != WATCHED}
    return Link("v1", "Pod", text(about, "name"), "", created, "pods", labels)


def _created_before(pod: Thing) -> str:
    """The moment that we wrote down when the pod was shown to us first; "" if that was now."""
    try:
        told = json.loads(text(notes(pod), WORKLOAD) or "{}")
    except (ValueError, RecursionError):
        return ""
    before = text(told, "created") if isinstance(told, Mapping) else ""
    return before if before.endswith("Z") and moment_ns(before) is not None else ""


def identity(workload: Link, chain: Chain, namespace: str, cluster: str) -> list[Variable]:
    """The first four by the downward API; the others name the workload.

    Of a pod without owners the kubelet puts name and uid in, where they are known.
    """
    name = workload.name or f"$({POD_NAME})"
    uid = workload.uid or f"$({POD_UID})"
    variables: list[Variable] = [
        {"name": each, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for each, path in _FIELDS.items()
    ]
    told = described(workload) | {"name": name, "uid": uid}
    variables.append(plain("RUNWATCH_WORKLOAD", json.dumps(told)))
    if workload.created:
        identifier, metadata = original(workload, chain, name, namespace, cluster)
        variables.append(plain("GKE_DIAGON_IDENTIFIER", json.dumps(identifier)))
        variables.append(plain("GKE_DIAGON_METADATA", json.dumps(metadata)))
    return variables


def place(pod: Thing, workload: Link) -> list[Variable]:
    """Which of a StatefulSet's pods it is: nothing else tells its ranks apart."""
    index = str(labels(pod).get(_INDEX, ""))
    is_told = workload.group_kind == ("apps", "StatefulSet") and index.isascii() and index.isdigit()
    return [plain(POD_INDEX, index)] if is_told else []


def described(workload: Link) -> dict[str, str]:
    return {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "name": workload.name,
        "uid": workload.uid,
        "created": workload.created,
        "plural": workload.plural,
    }


def original(
    workload: Link, chain: Chain, name: str, namespace: str, cluster: str
) -> tuple[dict[str, str], dict[str, str]]:
    """As google-cloud-mldiagnostics reads them: its run's id is made of cluster, namespace, kind,
    name and time."""
    labels = sorted((str(key), str(value)) for key, value in workload.labels.items())
    identifier = {
        "metadata.name": name,
        "metadata.kind": workload.kind,
        "clustername": literal(cluster),
        "namespace": namespace,
    }
    metadata = {
        "associated-labels": ",".join(f"{key}={value}" for key, value in labels),
        "parent-workload": chain.parent,
        "creation-timestamp": workload.created,
    }
    return identifier, metadata


def of_run(wished: Wishes, settings: WebhookSettings, mode: str) -> list[Variable]:
    """What the SDK goes by."""
    variables = []
    if mode != "none" and settings.head:
        variables.append(plain("RUNWATCH_HEAD", literal(settings.head)))
    if wished.name:
        variables.append(plain("RUNWATCH_NAME", literal(wished.name)))
    if wished.group:
        variables.append(plain("RUNWATCH_GROUP", literal(wished.group)))
    return variables
