"""What a cluster told, and what its objects mean for all sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.kube import Thing, created_ns, labels, owners, part, parts, text

PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
"""Of everything that the chart makes; the name can be another."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
CHART_LABEL: Final = "helm.sh/chart"
OURS: Final = "runwatch"
STARTING_SECONDS: Final = 180.0
"""So long a pod may pull its image and start before it needs attention."""
MOST_OWNERS: Final = 8
MOST_NAMED: Final = 5

OUR_PODS: Final = "Pod of the release"
WORKLOAD: Final = "workload"
"""Of what may be refused, beside kinds: any kind of workload."""

STUCK: Final = frozenset(
    {
        "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull",
        "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
        "RunContainerError",
    }
)  # fmt: skip
"""Why a container waits that does not start by waiting."""


@dataclass(frozen=True, slots=True)
class Told:
    now_ns: int
    things: Mapping[str, Sequence[Thing]] = field(default_factory=dict)
    """By kind: Pod, Node, Job …"""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By kind: why it was not told.  `Pod` are people's."""
    run_workloads: frozenset[str] | None = None
    """The uids of workloads of which a head has a run; None: nobody could say."""
    namespace: str = ""
    """Only its pods were asked for; "": those of all."""

    def of(self, kind: str) -> Sequence[Thing]:
        return self.things.get(kind, ())

    def ours(self, kind: str, component: str) -> Sequence[Thing]:
        """The release's own objects, by the chart's labels."""
        return [
            each
            for each in self.of(kind)
            if labels(each).get(PART_OF_LABEL) == OURS
            and labels(each).get(COMPONENT_LABEL) == component
        ]

    def age_seconds(self, thing: Thing) -> float:
        """Since it was created.  Of a time that nobody can read: a long one."""
        created = created_ns(thing)
        return float("inf") if created is None else (self.now_ns - created) / 1e9


def name(thing: Thing) -> str:
    return text(part(thing, "metadata"), "name")


def namespace(thing: Thing) -> str:
    return text(part(thing, "metadata"), "namespace")


def uid(thing: Thing) -> str:
    return text(part(thing, "metadata"), "uid")


def full_name(thing: Thing) -> str:
    return f"{namespace(thing)}/{name(thing)}" if namespace(thing) else name(thing)


def condition(thing: Thing, kind: str) -> Thing:
    for each in parts(part(thing, "status").get("conditions")):
        if each.get("type") == kind:
            return each
    return {}


def number(thing: Thing, *path: str) -> int:
    """0 if it is missing: Kubernetes leaves out counts that are 0."""
    value = part(thing, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) else 0


def by_uid(told: Told) -> dict[str, Thing]:
    return {uid(each): each for some in told.things.values() for each in some if uid(each)}


def chain(thing: Thing, known: Mapping[str, Thing]) -> Iterator[Thing]:
    """What controls it, nearest first, as far as it was told."""
    for _ in range(MOST_OWNERS):
        owner = next(owners(thing), None)
        if owner is None or owner.uid not in known:
            return
        thing = known[owner.uid]
        yield thing


def is_over(pod: Thing) -> bool:
    """It has ended, or is being deleted."""
    phase = text(part(pod, "status"), "phase")
    return phase in ("Succeeded", "Failed") or "deletionTimestamp" in part(pod, "metadata")


def is_ready(pod: Thing) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def why_not_ready(pod: Thing) -> tuple[str, str]:
    """The cluster's word for it, and its sentence; ("", "") if it says nothing."""
    for container in containers_told(pod):
        waiting = part(container, "state", "waiting")
        if text(waiting, "reason") in STUCK:
            return text(waiting, "reason"), text(waiting, "message")
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return text(scheduled, "reason") or "Unschedulable", text(scheduled, "message")
    return "", ""


def containers_told(pod: Thing) -> Iterator[Thing]:
    status = part(pod, "status")
    yield from parts(status.get("initContainerStatuses"))
    yield from parts(status.get("containerStatuses"))


def variables(pod: Thing) -> dict[str, str]:
    """The plain environment variables of its containers; the first container wins."""
    found: dict[str, str] = {}
    for container in parts(part(pod, "spec").get("containers")):
        for each in parts(container.get("env")):
            if isinstance(each.get("value"), str):
                found.setdefault(text(each, "name"), each["value"])
    return found


def few(names: Sequence[str]) -> str:
    """Some of them, in words."""
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {more:,} more" if more > 0 else shown


def selects(selector: Any, thing_labels: Thing) -> bool:
    """A label selector of an object, as the API server reads it; an empty one selects all."""
    if not isinstance(selector, Mapping):
        return True
    wanted = part(selector, "matchLabels")
    if any(thing_labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(expressed(each, thing_labels) for each in parts(selector.get("matchExpressions")))


def expressed(expression: Thing, thing_labels: Thing) -> bool:
    key, operator = text(expression, "key"), text(expression, "operator")
    values, value = expression.get("values") or [], thing_labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt"):
        return _compared(operator, value, values)
    return False


def _compared(operator: str, value: object, values: Sequence[object]) -> bool:
    try:
        have, bound = int(str(value)), int(str(values[0]))
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound
