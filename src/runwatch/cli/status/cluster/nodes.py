"""Which nodes with accelerators have no agent that works, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from runwatch.cli.status.cluster.told import (
    OUR_PODS,
    STARTING_SECONDS,
    Told,
    condition,
    expressed,
    few,
    is_over,
    is_ready,
    name,
    namespace,
    number,
    selects,
    why_not_ready,
)
from runwatch.cli.status.types import Problem, Section, many
from runwatch.kube import Thing, labels, part, parts, text

ACCELERATORS: Final = ("nvidia.com/gpu", "google.com/tpu", "amd.com/gpu")
_BY_ITSELF: Final = "node.kubernetes.io/"
"""Taints that the cluster sets for a node's state: it lets pods of a DaemonSet tolerate them."""
_INVITED: Final = "runwatch.dev/agent"
"""The chart's own label for nodes that nothing else marks."""
_NODE: Final = "NODE"
"""In words that several nodes share."""
_STRICT: Final = ("baseline", "restricted")
_SECURITY: Final = "pod-security.kubernetes.io/enforce"


def section(told: Told) -> Section:
    for kind in ("Node", OUR_PODS):
        if kind in told.refused:
            unread = told.refused[kind]
            return Section("nodes", {"refused": unread}, [unread], is_unread=True)
    sets = told.ours("DaemonSet", "agent")
    agents = _agents(told)
    left_out: dict[tuple[str, str], list[str]] = defaultdict(list)
    kinds: dict[str, int] = defaultdict(int)
    starting, with_devices = 0, 0
    for node in told.of("Node"):
        kind = accelerator(node)
        pod = agents.get(name(node))
        if kind:
            kinds[kind] += 1
            with_devices += 1
        if pod is not None and is_ready(pod):
            continue
        if pod is None and not kind:
            continue
        why = _why(told, node, pod, sets)
        if why is None:
            starting += 1
            continue
        left_out[why].append(name(node))
    problems = [_problem(why, nodes) for why, nodes in left_out.items()] if sets else []
    ready = sum(is_ready(pod) for pod in agents.values())
    return Section(
        "nodes",
        {
            "nodes": len(told.of("Node")),
            "with_accelerators": with_devices,
            "agents_ready": ready,
            "agents_desired": sum(number(s, "status", "desiredNumberScheduled") for s in sets),
            "agents_starting": starting,
            "without_agent": [
                {"node": node, "why": what}
                for (what, _), nodes in left_out.items()
                for node in nodes
            ],
        },
        list(_lines(told, kinds, ready, starting, bool(sets))),
        problems,
    )


def invitation(sets: Sequence[Thing], node: str) -> str:
    """How an agent comes to a node that the release leaves out."""
    if any(_INVITED in str(part(each, "spec", "template", "spec", "affinity")) for each in sets):
        return f"`kubectl label node {node} {_INVITED}=true` lets an agent run there"
    return "correct agent.nodeSelectorTerms or agent.nodeSelector in the chart's values"


def accelerator(node: Thing) -> str:
    """The kind that pods can have there; "" without any."""
    has = part(node, "status", "allocatable")
    return next((kind for kind in ACCELERATORS if str(has.get(kind, "0")) != "0"), "")


def _agents(told: Told) -> dict[str, Thing]:
    """The agent's pod of each node; of two, as while one is replaced, the one that is ready."""
    found: dict[str, Thing] = {}
    for pod in told.ours("Pod", "agent"):
        node = text(part(pod, "spec"), "nodeName") or _meant_for(pod)
        if node and not is_over(pod) and not (node in found and is_ready(found[node])):
            found[node] = pod
    return found


def _meant_for(pod: Thing) -> str:
    """A DaemonSet's pod says its node by an affinity, also before it is scheduled."""
    required = part(
        pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in parts(required.get("nodeSelectorTerms")):
        for each in parts(term.get("matchFields")):
            if each.get("key") == "metadata.name" and each.get("values"):
                return str(each["values"][0])
    return ""


def _why(
    told: Told, node: Thing, pod: Thing | None, sets: Sequence[Thing]
) -> tuple[str, str] | None:
    """What is the matter and what to do; None if it may be just starting."""
    ready = condition(node, "Ready")
    if ready.get("status") != "True":
        since = text(ready, "lastTransitionTime")
        said = text(ready, "reason") or "it says nothing"
        return (
            f"the node is not ready{f' since {since}' if since else ''} ({said})",
            "`kubectl describe node` says why; the agent starts when the node is back",
        )
    if pod is not None:
        return _why_its_pod(told, pod)
    for each in sets:
        if why := _why_no_pod(told, node, each):
            return why
    newest = min((told.age_seconds(each) for each in (node, *sets)), default=0.0)
    if newest < STARTING_SECONDS:
        return None
    return (
        "the cluster has made no pod for it",
        "`kubectl describe daemonset -l app.kubernetes.io/component=agent -A` says why",
    )


def _why_its_pod(told: Told, pod: Thing) -> tuple[str, str] | None:
    reason, message = why_not_ready(pod)
    where = f"-n {namespace(pod)} {name(pod)}"
    if "ImagePull" in reason or "InvalidImage" in reason or "ImageNeverPull" in reason:
        image = next((text(c, "image") for c in parts(part(pod, "spec").get("containers"))), "")
        return (
            f"the agent's image {image} cannot be pulled ({reason})",
            "correct image.repository and image.tag, or name a secret in imagePullSecrets "
            f"(`kubectl describe pod {where}`)",
        )
    if reason == "CrashLoopBackOff":
        return "the agent ends again and again", f"`kubectl logs {where} --previous` says why"
    if reason:
        said = f": {message}" if message else ""
        return (
            f"the agent's pod does not start ({reason}{said[:200]})",
            f"`kubectl describe pod {where}` says more",
        )
    if told.age_seconds(pod) < STARTING_SECONDS:
        return None
    return "the agent's pod is not ready", f"`kubectl describe pod {where}` says why"


def _why_no_pod(told: Told, node: Thing, daemon_set: Thing) -> tuple[str, str] | None:
    spec = part(daemon_set, "spec", "template", "spec")
    for taint in parts(part(node, "spec").get("taints")):
        if not _tolerates(spec, taint):
            value = f"={taint['value']}" if taint.get("value") else ""
            words = f"{text(taint, 'key')}{value}:{text(taint, 'effect')}"
            return (
                f"the agent does not tolerate the taint {words}",
                "add it to agent.tolerations in the chart's values",
            )
    if not _may_be_at(spec, node):
        return (
            "the agent's node selector or affinity leaves it out",
            invitation([daemon_set], _NODE),
        )
    space = next((n for n in told.of("Namespace") if name(n) == namespace(daemon_set)), None)
    level = str(labels(space).get(_SECURITY, "")) if space else ""
    if level in _STRICT and not number(daemon_set, "status", "currentNumberScheduled"):
        return (
            f"namespace {namespace(daemon_set)} enforces Pod Security {level!r}, and the agent "
            "mounts a directory of the node",
            f"`kubectl label namespace {namespace(daemon_set)} --overwrite {_SECURITY}=privileged`",
        )
    return None


def _tolerates(spec: Thing, taint: Thing) -> bool:
    if taint.get("effect") == "PreferNoSchedule" or text(taint, "key").startswith(_BY_ITSELF):
        return True
    for each in parts(spec.get("tolerations")):
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        if each.get("operator") == "Exists" and each.get("key") in (None, "", taint.get("key")):
            return True
        same = each.get("key") == taint.get("key")
        if same and (each.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _may_be_at(spec: Thing, node: Thing) -> bool:
    if not selects({"matchLabels": part(spec, "nodeSelector")}, labels(node)):
        return False
    required = part(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = parts(required.get("nodeSelectorTerms"))
    return not terms or any(
        all(expressed(each, labels(node)) for each in parts(term.get("matchExpressions")))
        for term in terms
    )


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def _problem(why: tuple[str, str], nodes: list[str]) -> Problem:
    what, todo = why
    one = len(nodes) == 1
    who = nodes[0] if one else f"{len(nodes):,} nodes ({few(sorted(nodes))})"
    return Problem(f"{who}: no agent: {what}", todo.replace(_NODE, nodes[0] if one else _NODE))


def _lines(
    told: Told, kinds: Mapping[str, int], ready: int, starting: int, has_set: bool
) -> Iterator[str]:
    devices = ", ".join(f"{count:,} with {kind}" for kind, count in kinds.items())
    yield many(len(told.of("Node")), "node") + (f", {devices}" if devices else ", no accelerators")
    if not has_set:
        yield "no agents: this release has none"
        return
    desired = sum(
        number(each, "status", "desiredNumberScheduled") for each in told.ours("DaemonSet", "agent")
    )
    more = f", {starting} just starting" if starting else ""
    yield f"agents: {ready:,} of {desired:,} ready{more}"
