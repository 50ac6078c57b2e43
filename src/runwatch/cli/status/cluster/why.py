"""Why a pod is not watched, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.address import is_same_head
from runwatch.cli.status.cluster import webhook
from runwatch.cli.status.cluster.nodes import invitation
from runwatch.cli.status.cluster.told import (
    OUR_PODS,
    Told,
    few,
    is_ready,
    name,
    namespace,
    selects,
    uid,
    variables,
)
from runwatch.cli.status.cluster.wished import Wish, had_label
from runwatch.k8s import wishes
from runwatch.k8s.names import EXEC, INJECTED, MODE, WATCH
from runwatch.k8s.settings import WebhookSettings
from runwatch.kube import Thing, created_ns, labels, moment_ns, notes, part, parts, text

SILENT_SECONDS: Final = 300.0
"""So long a program may import and compile before it says who it is."""
_SPARED: Final = {
    "static": "it is a static pod of its node",
    "windows": "it is a Windows pod",
}
"""Words of the webhook, and ours."""


@dataclass(frozen=True, slots=True)
class Why:
    """A reason that pods share: one line for all of them."""

    what: str
    todo: str
    key: str
    """A word for programs."""


def left_out(told: Told, pod: Thing, owners: Sequence[Thing], space: Thing, wish: Wish) -> Why:
    again = _again(pod, owners)
    if why := spared(pod):
        todo = "the webhook leaves such pods alone: take the label away"
        return Why(why, todo, "spared")
    if webhook.CONFIGURATION in told.refused:
        return Why("the webhook did not see it", again, "not_injected")
    found = webhook.configurations(told)
    if not found:
        todo = "`helm upgrade` the release with webhook.enabled=true, then "
        return Why("there is no webhook", todo + again, "no_webhook")
    hooks = [hook for each in found for hook in parts(each.get("webhooks"))]
    near = [hook for hook in hooks if selects(hook.get("namespaceSelector"), labels(space))]
    if not near:
        what = f"namespace {namespace(pod)} is exempt from the webhook"
        todo = (
            "move the workload, or take the label away (`kubectl get "
            f"mutatingwebhookconfiguration {name(found[0])} -o yaml` shows what is exempt)"
        )
        return Why(what, todo, "exempt")
    if not any(selects(hook.get("objectSelector"), labels(pod)) for hook in near):
        what = (
            "the API server does not ask the webhook about such pods in a namespace without label"
        )
        todo = (
            f"label the namespace or the pod template with {WATCH}=true, or add a label that its "
            "pods have to webhook.workloadLabels in the chart's values"
        )
        return Why(what, todo, "not_asked")
    created, hooked = created_ns(pod), min((created_ns(each) or 0 for each in found), default=0)
    if created is not None and created < hooked:
        return Why("it was created before the webhook was installed", again, "before_webhook")
    had = had_label(pod, wish)
    if had is None:
        either = f"it was created before {wish.on} was labelled, or the webhook did not answer then"
        return Why(either, again, "not_injected")
    if not had:
        return Why(f"it was created before {wish.on} was labelled", again, "before_label")
    return Why("the webhook did not answer when it was created", again, "webhook_down")


def spared(pod: Thing) -> str:
    """What the webhook never touches; "" if it may."""
    return _SPARED.get(wishes.spared(pod, {}, "", WebhookSettings(), "-"), "")


def _again(pod: Thing, owners: Sequence[Thing]) -> str:
    """How it gets new pods: an admission webhook sees only pods that are made."""
    if not owners:
        return "delete and create the pod anew: only new pods are watched"
    top = owners[-1]
    kind, where = text(top, "kind"), namespace(pod)
    if kind in ("Deployment", "StatefulSet"):
        return f"`kubectl rollout restart -n {where} {kind.lower()}/{name(top)}`"
    return f"delete and create {kind} {where}/{name(top)} anew: only new pods are watched"


def silent(told: Told, pod: Thing, owners: Sequence[Thing]) -> Why | None:
    """Of a pod that the webhook saw."""
    words = str(notes(pod).get(INJECTED, "")).split()
    if why := _other_head(told, pod):
        return why
    mode = words[1] if len(words) > 1 else str(notes(pod).get(MODE, "node"))
    if mode == "node" and (why := _no_agent(told, pod)):
        return why
    if mode == "none" or told.run_workloads is None or not _runs_for(told, pod, SILENT_SECONDS):
        return None
    if any(uid(each) in told.run_workloads for each in (*owners, pod)):
        return None
    if "exec" in words:
        return Why(
            "it runs, and no head has a run of it, though it is started by exec",
            f"`kubectl logs -n {namespace(pod)} {name(pod)}`: is it a Python program, and does "
            "its Python start with our files (not `python -I`)?",
            "no_run_exec",
        )
    todo = f'let it call runwatch.init(), or set the annotation {EXEC}: "true" on the workload and '
    todo += "create it anew"
    if OUR_PODS in told.refused:
        what = "its program does not call runwatch, or its records do not reach this cluster's head"
        todo += "; who may look at the release is told whether its node has an agent"
    else:
        what = "its program does not call runwatch"
    return Why(f"it runs, and no head has a run of it: {what}", todo, "no_run")


def _other_head(told: Told, pod: Thing) -> Why | None:
    ours = {
        address
        for each in told.ours("Deployment", "webhook")
        if (address := variables(part(each, "spec", "template")).get("RUNWATCH_HEAD"))
    }
    its = variables(pod).get("RUNWATCH_HEAD", "")
    if not its or not ours or any(is_same_head(its, address) for address in ours):
        return None
    return Why(
        f"its head is {its}, the release's is {few(sorted(ours))}",
        "look for it there; or take RUNWATCH_HEAD out of its manifest and create it anew",
        "other_head",
    )


def _no_agent(told: Told, pod: Thing) -> Why | None:
    node = text(part(pod, "spec"), "nodeName")
    sets = told.ours("DaemonSet", "agent")
    if {"DaemonSet", OUR_PODS} & told.refused.keys():
        return None
    if not node or not _runs_for(told, pod, SILENT_SECONDS):
        return None
    agents = [p for p in told.ours("Pod", "agent") if text(part(p, "spec"), "nodeName") == node]
    if any(is_ready(each) or told.age_seconds(each) < SILENT_SECONDS for each in agents):
        return None
    todo = (
        f"the section nodes says why {node} has none; its records are sent when it has one"
        if agents
        else f"{invitation(sets, node)}, or set the annotation {MODE}: sidecar on the workload"
    )
    what = f"node {node} has no agent{' that is ready' if agents else ''}: its records stay there"
    return Why(what if sets else "the release has no agents: its records stay on the node", todo,
               "no_agent")  # fmt: skip


def _runs_for(told: Told, pod: Thing, seconds: float) -> bool:
    """Whether every container runs, and for that long."""
    begun = [
        moment_ns(part(each, "state", "running").get("startedAt"))
        for each in parts(part(pod, "status").get("containerStatuses"))
    ]
    return bool(begun) and all(
        each is not None and (told.now_ns - each) / 1e9 >= seconds for each in begun
    )
