"""Asks the cluster, in a handful of calls that run beside each other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from runwatch.cli.cluster.kubectl import Kubectl, Listed, NoCluster
from runwatch.cli.status.cluster.told import OURS, PART_OF_LABEL, Told, full_name, uid
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s.names import GROUP_NAME, LEASE, RUNS
from runwatch.kube import Thing, part, parts, text

OF_THE_RELEASE: Final = ("statefulsets.apps", "deployments.apps", "daemonsets.apps", "pods")
OF_THE_CLUSTER: Final = ("nodes", "namespaces")
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
        lambda: kubectl.all(OF_THE_RELEASE, "--all-namespaces", ours),
        lambda: kubectl.all(("pods",), *where),
        lambda: _with_fields(kubectl, OF_THE_CLUSTER),
        lambda: _with_fields(kubectl, workloads, *where),
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
        answers = list(pool.map(_answered, questions))
    return told(answers, now_ns, kubectl.namespace, knows_runs=_RUNS in there)


def told(
    answers: Iterable[Listed], now_ns: int, namespace: str = "", *, knows_runs: bool = False
) -> Told:
    things: dict[str, dict[str, Thing]] = defaultdict(dict)
    refused: dict[str, str] = {}
    for answer in answers:
        for each in answer.items:
            kind = text(each, "kind")
            things[kind].setdefault(uid(each) or full_name(each), each)
        for why in answer.why:
            if found := _FORBIDDEN.search(why):
                kind = _KINDS.get(found[1], found[1])
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
