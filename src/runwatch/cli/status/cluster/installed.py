"""The release and its parts: head, webhook, operator."""

from __future__ import annotations

from typing import Any, Final

from runwatch.cli.pictures.moments import duration
from runwatch.cli.status.cluster.told import (
    CHART_LABEL,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    OURS,
    STARTING_SECONDS,
    Told,
    full_name,
    is_over,
    is_ready,
    name,
    namespace,
    number,
    why_not_ready,
)
from runwatch.cli.status.types import Problem, Section
from runwatch.k8s.names import LEASE
from runwatch.kube import Thing, labels, moment_ns, part, text

PARTS: Final = {
    "head": "StatefulSet",
    "agent": "DaemonSet",
    "webhook": "Deployment",
    "operator": "Deployment",
}
INSTALL: Final = (
    "install it: `helm install runwatch deploy/helm/runwatch -n runwatch --create-namespace`"
)
_LATE: Final = 3
"""A leader that has not renewed its lease for so many of its durations is gone."""


def release(told: Told) -> Section:
    found = {part_: told.ours(kind, part_) for part_, kind in PARTS.items()}
    every = [each for some in found.values() for each in some]
    refused = [why for kind, why in told.refused.items() if kind in PARTS.values()]
    if not every:
        wrong = [] if refused else [Problem("Runwatch is not installed in this cluster", INSTALL)]
        return Section(
            "release",
            {"parts": {}, "releases": []},
            list(dict.fromkeys(refused)),
            wrong,
            is_unread=bool(refused),
        )
    releases = sorted(
        {(namespace(each), str(labels(each).get(INSTANCE_LABEL, ""))) for each in every}
    )
    charts = sorted({str(labels(each).get(CHART_LABEL, "")) for each in every} - {""})
    lines = [f"{instance or OURS} in namespace {space}" for space, instance in releases]
    if charts:
        lines[0] += f", chart {', '.join(charts)}"
    problems = []
    if len({instance for _, instance in releases}) > 1:
        problems.append(
            Problem(
                f"{len(releases)} releases are installed: their webhooks and operators disturb "
                "each other",
                "keep one, and `helm uninstall` the others",
            )
        )
    if len(charts) > 1:
        problems.append(
            Problem(
                f"the parts are of several charts: {', '.join(charts)}",
                "an upgrade did not end: `helm upgrade` it again",
            )
        )
    lacks = [part_ for part_, some in found.items() if not some]
    if lacks:
        lines.append(f"without {', '.join(lacks)}: the values leave that out")
    facts = {
        "releases": [{"namespace": s, "name": i} for s, i in releases],
        "charts": charts,
        "parts": {part_: [full_name(each) for each in some] for part_, some in found.items()},
    }
    return Section("release", facts, lines, problems)


def head(told: Told) -> Section:
    return replicas(told, "head", "programs go on recording; agents keep what they cannot send")


def operator(told: Told) -> Section:
    made = replicas(
        told, "operator", "no captures, no Run objects and nothing of pods until it is back"
    )
    leader, lines, problems = _leader(told, bool(told.ours("Deployment", "operator")))
    more = problems if not made.problems else []
    return Section(
        "operator",
        {**made.facts, "leader": leader},
        [*made.lines, *lines],
        [*made.problems, *more],
        is_unread=made.is_unread or "Lease" in told.refused,
    )


def replicas(told: Told, component: str, meanwhile: str) -> Section:
    sets = told.ours(PARTS[component], component)
    if not sets:
        line = told.refused.get(PARTS[component], "not part of this release")
        is_unread = PARTS[component] in told.refused
        return Section(component, {"ready": None, "desired": None}, [line], is_unread=is_unread)
    ready = sum(number(each, "status", "readyReplicas") for each in sets)
    desired = sum(_wanted(each) for each in sets)
    lines = [f"{ready} of {desired} ready ({', '.join(full_name(each) for each in sets)})"]
    pods = [p for p in told.ours("Pod", component) if not is_over(p) and not is_ready(p)]
    stuck = [(pod, *why_not_ready(pod)) for pod in pods]
    wrong: list[Problem] = []
    for pod, reason, message in stuck:
        if reason:
            said = f": {message}" if message else ""
            what = f"{full_name(pod)} is not ready ({reason}{said[:200]}): {meanwhile}"
            wrong.append(Problem(what, f"`kubectl describe pod -n {namespace(pod)} {name(pod)}`"))
    young = any(told.age_seconds(p) < STARTING_SECONDS for p in pods)
    if not wrong and young and ready < desired:
        lines.append("it is just starting")
    elif not wrong and (ready == 0 < desired):
        where = namespace(sets[0])
        selector = f"{COMPONENT_LABEL}={component}"
        todo = f"`kubectl describe pods -n {where} -l {selector}` says why"
        wrong.append(Problem(f"no {component} is ready: {meanwhile}", todo))
    return Section(component, {"ready": ready, "desired": desired}, lines, wrong)


def _wanted(thing: Thing) -> int:
    replicas = part(thing, "spec").get("replicas")
    return replicas if isinstance(replicas, int) else 1


def _leader(told: Told, expected: bool) -> tuple[dict[str, Any] | None, list[str], list[Problem]]:
    if "Lease" in told.refused or not expected:
        return None, [told.refused["Lease"]] if expected else [], []
    lease = next((each for each in told.of("Lease") if name(each) == LEASE), {})
    spec = part(lease, "spec")
    holder, renewed = text(spec, "holderIdentity"), moment_ns(spec.get("renewTime"))
    seconds = number(lease, "spec", "leaseDurationSeconds") or 15
    since = moment_ns(spec.get("acquireTime"))
    facts = {"holder": holder, "since_ns": since, "renewed_ns": renewed}
    if not holder:
        young = all(
            told.age_seconds(each) < STARTING_SECONDS
            for each in told.ours("Deployment", "operator")
        )
        wrong = [] if young else [Problem("no operator leads", _logs(told, "operator"))]
        return facts, ["no leader yet"] if young else [], wrong
    late = renewed is not None and (told.now_ns - renewed) / 1e9 > _LATE * seconds
    line = f"{holder} leads" + (f", for {duration(told.now_ns - since)}" if since else "")
    if late and renewed is not None:
        what = (
            f"the operator's leader {holder} has not renewed its lease for "
            f"{duration(told.now_ns - renewed)}"
        )
        return facts, [], [Problem(what, _logs(told, "operator"))]
    return facts, [line], []


def _logs(told: Told, component: str) -> str:
    where = next((namespace(each) for each in told.ours(PARTS[component], component)), "")
    return f"`kubectl logs -n {where} -l {COMPONENT_LABEL}={component}` says why"
