"""Asks the cluster, in a handful of calls that run beside each other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from runwatch.cli.cluster.kubectl import Forbidden, Kubectl, Listed, NoCluster
from runwatch.cli.cluster.release import USUAL
from runwatch.cli.status.cluster.told import (
    OUR_PODS,
    OURS,
    PART_OF_LABEL,
    WORKLOAD,
    Told,
    full_name,
    uid,
)
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s.names import GROUP_NAME, LEASE, RUNS
from runwatch.kube import Thing, part, parts, text

OF_THE_RELEASE: Final = ("statefulsets.apps", "deployments.apps", "daemonsets.apps", "pods")
NOTHING: Final = Listed((), ())
WORKLOADS: Final = (
    "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch", "cronjobs.batch",
    "jobs.batch.volcano.sh", "jobsets.jobset.x-k8s.io", "jaxjobs.kubeflow.org",
    "mpijobs.kubeflow.org", "pytorchjobs.kubeflow.org", "tfjobs.kubeflow.org",
    "leaderworkersets.leaderworkerset.x-k8s.io", "rayclusters.ray.io", "rayjobs.ray.io",
    "rayservices.ray.io", "trainjobs.trainer.kubeflow.org",
)  # fmt: skip
WEBHOOKS: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_RUNS: Final = f"{RUNS}.{GROUP_NAME}"
_KINDS: Final = {
    "nodes": "Node", "namespaces": "Namespace", "pods": "Pod", "leases": "Lease",
    "mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "daemonsets": "DaemonSet",
    "deployments": "Deployment", "statefulsets": "StatefulSet",
}  # fmt: skip
_FORBIDDEN: Final = re.compile(r"([a-z]+)(?:\.[a-z0-9.-]+)? is forbidden")
_FIELDS: Final = "--show-managed-fields=true"
"""Without it, kubectl leaves out who set a label, and when.  Those before 1.21 do not know it."""
_AT_ONCE: Final = 4


def ask(kubectl: Kubectl, now_ns: int) -> Told:
    there = set(kubectl.text("api-resources", "--verbs=list", "--output=name").split())
    where = (f"--namespace={kubectl.namespace}",) if kubectl.namespace else ("--all-namespaces",)
    ours = f"--selector={PART_OF_LABEL}={OURS}"
    workloads = [each for each in WORKLOADS if each in there]
    questions: list[Callable[[], Listed]] = [
        lambda: _of_release(kubectl, ours),
        lambda: _with_fields(kubectl, workloads, *where),
        lambda: kubectl.all(("pods",), *where),
        lambda: kubectl.all(("nodes",)),
        lambda: _namespaces(kubectl),
        lambda: kubectl.all((WEBHOOKS,), ours),
        lambda: kubectl.all(
            ("leases.coordination.k8s.io",),
            "--all-namespaces",
            f"--field-selector=metadata.name={LEASE}",
        ),
    ]
    if _RUNS in there:
        questions.append(lambda: kubectl.all((_RUNS,), *where))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        release, owners, *answers = pool.map(_answered, questions)
    found = told(
        answers,
        now_ns,
        kubectl.namespace,
        knows_runs=_RUNS in there,
        of_release=release,
        workloads=owners,
    )
    if "Pod" in found.refused and OUR_PODS in found.refused:
        todo = (
            "ask for the right to list pods" if kubectl.namespace else "--namespace NS looks at one"
        )
        raise Forbidden(f"you may not look into this cluster: {found.refused['Pod']}; {todo}")
    return found


def told(
    answers: Iterable[Listed],
    now_ns: int,
    namespace: str = "",
    *,
    knows_runs: bool = False,
    of_release: Listed = NOTHING,
    workloads: Listed = NOTHING,
) -> Told:
    """`answers`: what else was asked.  Of two questions about pods, one may be refused."""
    things: dict[str, dict[str, Thing]] = defaultdict(dict)
    refused: dict[str, str] = {}
    for answer in (of_release, workloads, *answers):
        for each in answer.items:
            kind = text(each, "kind")
            things[kind].setdefault(uid(each) or full_name(each), each)
        for why in answer.why:
            if found := _FORBIDDEN.search(why):
                kind = _KINDS.get(found[1], found[1])
                if answer is workloads:
                    kind = WORKLOAD
                elif answer is of_release and kind == "Pod":
                    kind = OUR_PODS
                refused.setdefault(kind, f"not looked at: {why.partition(': ')[2] or why}")
    runs = {
        text(owner, "uid")
        for run in things["Run"].values()
        for owner in parts(part(run, "metadata").get("ownerReferences"))
    }
    return Told(
        now_ns,
        {kind: list(some.values()) for kind, some in things.items()},
        refused,
        frozenset(runs) if knows_runs and RUNS not in refused else None,
        namespace,
    )


def _of_release(kubectl: Kubectl, ours: str) -> Listed:
    """Who may not look everywhere may perhaps where the documents install it."""
    everywhere = kubectl.all(OF_THE_RELEASE, "--all-namespaces", ours)
    if everywhere.items or not everywhere.why:
        return everywhere
    there = kubectl.all(OF_THE_RELEASE, "--namespace", USUAL, ours)
    return there if there.items else everywhere


def _namespaces(kubectl: Kubectl) -> Listed:
    """Who may not list them may perhaps see their own."""
    found = _answered(lambda: _with_fields(kubectl, ("namespaces",)))
    if not found.why or not kubectl.namespace:
        return found
    try:
        return Listed((kubectl.get("namespace", kubectl.namespace, _FIELDS),), ())
    except Forbidden:
        return found


def _with_fields(kubectl: Kubectl, kinds: Sequence[str], *words: str) -> Listed:
    try:
        return kubectl.all(kinds, *words, _FIELDS)
    except RunwatchError as error:
        if "unknown flag" not in str(error):
            raise
    return kubectl.all(kinds, *words)


def _answered(question: Callable[[], Listed]) -> Listed:
    try:
        return question()
    except (NoCluster, UsageError):
        raise
    except RunwatchError as error:  # the other answers are worth something without this one
        return Listed((), (str(error),))
