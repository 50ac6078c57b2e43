"""Which pods are to be watched and are not, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.address import is_same_head
from runwatch.cli.status.cluster import webhook
from runwatch.cli.status.cluster.nodes import invitation
from runwatch.cli.status.cluster.told import (
    MOST_NAMED,
    OUR_PODS,
    WORKLOAD,
    Told,
    by_uid,
    chain,
    few,
    full_name,
    is_over,
    is_ready,
    name,
    namespace,
    selects,
    uid,
    variables,
)
from runwatch.cli.status.cluster.wished import (
    Wish,
    had_label,
    is_injected,
    is_ours,
    wished,
    wishes_of,
)
from runwatch.cli.status.types import Problem, Section, many
from runwatch.k8s import wishes
from runwatch.k8s.names import EXEC, INJECTED, MODE, WATCH
from runwatch.k8s.settings import WebhookSettings
from runwatch.kube import Thing, created_ns, labels, moment_ns, notes, part, parts, text
from runwatch.kube import owners as owners_of

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


def section(told: Told) -> Section:
    if "Pod" in told.refused:
        return Section("pods", {"refused": told.refused["Pod"]}, [told.refused["Pod"]])
    known, spaces = by_uid(told), {name(each): each for each in told.of("Namespace")}
    wrong: dict[tuple[str, Why], list[Thing]] = defaultdict(list)
    unwanted: dict[str, list[Thing]] = defaultdict(list)
    watched = labelled = unknown = 0
    for pod in told.of("Pod"):
        if is_over(pod) or is_ours(pod) or (told.namespace and namespace(pod) != told.namespace):
            continue
        owners = list(chain(pod, known))
        wish = wished(pod, owners, spaces.get(namespace(pod), {}))
        injected = is_injected(pod)
        if wish is None and not injected:
            unknown += _may_be_wished(told, owners[-1] if owners else pod)
            continue
        labelled += 1
        if wish is not None and not wish.watched and not injected:
            if overruled := _overruled(pod, owners, spaces.get(namespace(pod), {}), wish):
                unwanted[overruled].append(pod)
            continue
        if injected:
            why = _why_silent(told, pod, owners)
        else:
            why = _why_left_out(told, pod, owners, spaces.get(namespace(pod), {}), wish)
        if why is None:
            watched += injected
        else:
            wrong[_group(pod, owners), why].append(pod)
    facts = {
        "labelled": labelled,
        "watched": watched,
        "not_watched": [
            {"pod": full_name(pod), "workload": group, "why": why.key, "what": why.what}
            for (group, why), pods in wrong.items()
            for pod in pods
        ],
        "refused_by_label": sum(len(pods) for pods in unwanted.values()),
        "unknown": unknown,
    }
    lines = [f"{many(labelled, 'pod')} of labelled workloads, {watched} watched"]
    if not labelled and not unknown:
        lines = [f"no pod is labelled ({WATCH}=true on a workload, a pod or a namespace)"]
    if unknown:
        unread = told.refused.get("Namespace") or told.refused[WORKLOAD]
        lines.append(f"{many(unknown, 'more pod')} may be asked to be watched: {unread}")
    lines += [f"{_count(pods)} not watched: {why}" for why, pods in unwanted.items()]
    return Section("pods", facts, lines, list(_problems(wrong)))


def _may_be_wished(told: Told, farthest: Thing) -> bool:
    """Nobody could look whether its namespace, or a workload beyond this one, is labelled."""
    if "Namespace" in told.refused:
        return True
    return WORKLOAD in told.refused and any(owners_of(farthest))


def _overruled(pod: Thing, owners: Sequence[Thing], space: Thing, wish: Wish) -> str:
    """In words, if something farther away asks for it."""
    far = next((each for each in wishes_of(pod, owners, space) if each.watched), None)
    if far is None:
        return ""
    return f"{wish.key}=false on {wish.on} is nearer than {far.key}=true on {far.on}"


# ── why not ───────────────────────────────────────────────────────────────────────────────────


def _why_left_out(
    told: Told, pod: Thing, owners: Sequence[Thing], space: Thing, wish: Wish | None
) -> Why | None:
    assert wish is not None
    again = _again(pod, owners)
    if (spared := wishes.spared(pod, {}, "", WebhookSettings(), "-")) in _SPARED:
        todo = "the webhook leaves such pods alone: take the label away"
        return Why(_SPARED[spared], todo, "spared")
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


def _again(pod: Thing, owners: Sequence[Thing]) -> str:
    """How it gets new pods: an admission webhook sees only pods that are made."""
    if not owners:
        return "delete and create the pod anew: only new pods are watched"
    top = owners[-1]
    kind, where = text(top, "kind"), namespace(pod)
    if kind in ("Deployment", "StatefulSet"):
        return f"`kubectl rollout restart -n {where} {kind.lower()}/{name(top)}`"
    return f"delete and create {kind} {where}/{name(top)} anew: only new pods are watched"


def _why_silent(told: Told, pod: Thing, owners: Sequence[Thing]) -> Why | None:
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


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _group(pod: Thing, owners: Sequence[Thing]) -> str:
    if not owners:
        return f"Pod {full_name(pod)}"
    return f"{text(owners[-1], 'kind')} {full_name(owners[-1])}"


def _count(pods: Sequence[Thing]) -> str:
    one = full_name(pods[0])
    return f"pod {one} is" if len(pods) == 1 else f"{len(pods):,} pods ({one}, …) are"


def _problems(wrong: Mapping[tuple[str, Why], Sequence[Thing]]) -> Iterator[Problem]:
    """One for each workload; one for all if many have the same trouble."""
    alike: dict[str, dict[str, tuple[Why, int]]] = defaultdict(dict)
    for (group, why), pods in wrong.items():
        alike[why.what][group] = why, len(pods)
    for what, groups in alike.items():
        if len(groups) <= MOST_NAMED:
            for group, (why, count) in groups.items():
                yield Problem(f"{_who(group, count)}: {what}", why.todo)
            continue
        every = sum(count for _, count in groups.values())
        who = f"{every:,} pods are not watched ({few([*groups])})"
        todos = list(dict.fromkeys(why.todo for why, _ in groups.values()))
        first = todos[0] if len(todos) == 1 else f"for each of them, as the first: {todos[0]}"
        yield Problem(f"{who}: {what}", first)


def _who(group: str, pods: int) -> str:
    if group.startswith("Pod "):
        return f"{group} is not watched"
    return f"{many(pods, 'pod')} of {group} {'is' if pods == 1 else 'are'} not watched"
