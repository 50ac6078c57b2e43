"""What Events about a pod, and its node, say that happened to it: pure functions, as `pods.py`.

An Event says what no status does: when an image was pulled, and why a node was not found, each time
in other words.  The API server forgets it after an hour.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from runwatch.k8s.operator.pods import LONGEST_MESSAGE, Told
from runwatch.kube import Thing, moment_ns, part, parts, text
from runwatch.record.pods import PodTold, What

_CONTAINER: Final = re.compile(r"spec\.(?:initC|c)ontainers\{(.+)\}")

# ── Events ────────────────────────────────────────────────────────────────────────────────────


def told_of_event(event: Thing) -> Told | None:
    """What an Event of the core says of a pod; None: nothing of interest."""
    of = part(event, "involvedObject")
    if text(of, "kind") != "Pod" or not text(of, "uid"):
        return None
    reason, message = text(event, "reason"), text(event, "message")
    what, time_ns = _what(reason, message), _event_ns(event)
    if not what or time_ns is None:
        return None
    container = _CONTAINER.fullmatch(text(of, "fieldPath"))
    return Told(
        time_ns,
        PodTold(
            pod=text(of, "name"),
            namespace=text(of, "namespace"),
            uid=text(of, "uid"),
            what=what,
            reason=_REASONS.get(reason, reason) if what == "pull_failed" else reason,
            message=message[:LONGEST_MESSAGE],
            container=container[1] if container and what.startswith("pull") else "",
        ),
    )


_REASONS: Final = {"Failed": "ErrImagePull", "BackOff": "ImagePullBackOff"}


def _what(reason: str, message: str) -> What:
    if reason == "FailedScheduling" and not message.startswith("skip schedule"):
        return "unschedulable"
    if reason == "Pulling":
        return "pulling"
    # The same two reasons are used for containers that end again and again.
    if reason == "Failed" and message.startswith("Failed to pull image"):
        return "pull_failed"
    if reason == "BackOff" and message.startswith("Back-off pulling image"):
        return "pull_failed"
    if reason == "Preempted":
        return "preempted"
    if reason == "Evicted":
        return "evicted"
    return ""


def _event_ns(event: Thing) -> int | None:
    """When it was first so: an Event that comes again keeps that, and counts."""
    for value in (
        event.get("firstTimestamp"),
        event.get("eventTime"),
        part(event, "metadata").get("creationTimestamp"),
    ):
        if (time_ns := moment_ns(value)) is not None:
            return time_ns
    return None


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────


class Ready(NamedTuple):
    """Whether a node is heard of, and since when."""

    is_ready: bool
    time_ns: int
    reason: str
    message: str


def ready_of(node: Thing) -> Ready | None:
    """None: nobody has said it yet."""
    for each in parts(part(node, "status").get("conditions")):
        time_ns = moment_ns(each.get("lastTransitionTime"))
        if text(each, "type") == "Ready" and time_ns is not None:
            is_ready = text(each, "status") == "True"
            return Ready(is_ready, time_ns, text(each, "reason"), text(each, "message"))
    return None


def told_of_node(ready: Ready, pod: PodTold, scheduled_ns: int | None) -> Told | None:
    """What it means for a pod that was there since then.  That a node is ready is news only if it
    has become so since."""
    if ready.is_ready and (scheduled_ns is None or ready.time_ns <= scheduled_ns):
        return None
    what: What = "node_ready" if ready.is_ready else "node_not_ready"
    reason, message = ready.reason[:LONGEST_MESSAGE], ready.message[:LONGEST_MESSAGE]
    return Told(ready.time_ns, replace(pod, what=what, reason=reason, message=message))
