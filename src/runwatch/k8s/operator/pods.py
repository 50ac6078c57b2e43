"""What a pod's object says that happened to it.

Pure functions of what the API server has, with its own times: whoever looks later tells the same.
A status says a thing for as long as it stands, so nothing here depends on the order of looks.
What Events and nodes say is in `pod_events.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from runwatch.k8s.operator.whose import whose
from runwatch.kube import Thing, created_ns, moment_ns, part, parts, text
from runwatch.record.pods import PodTold, What

LONGEST_MESSAGE: Final = 1_000
NOBODY: Final = PodTold()
SENTENCES: Final = ("unschedulable", "pull_failed")
"""Of these the cluster tells in many words."""
OVER: Final = ("Succeeded", "Failed")
_SECOND_NS: Final = 1_000_000_000

_DISRUPTIONS: Final[dict[str, What]] = {
    "PreemptionByScheduler": "preempted",
    "PreemptionByKubeScheduler": "preempted",  # until 1.26
}
"""Reasons of the condition DisruptionTarget; by any other one it was evicted."""
_BY_GARBAGE: Final = "DeletionByPodGC"
_SENT_AWAY: Final[dict[str, What]] = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "Terminated": "evicted",  # its node shuts down
    "Shutdown": "evicted",
    "NodeShutdown": "evicted",
}
"""Reasons of a pod's status."""
_NODE_LOST: Final = "NodeLost"
_NO_IMAGE: Final = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
)  # fmt: skip
_OUT_OF_MEMORY: Final = "OOMKilled"
_NOT_FOUND: Final = "ContainerStatusUnknown"


class Told(NamedTuple):
    time_ns: int
    what: PodTold

    @property
    def key(self) -> tuple[str, ...]:
        """What has the same one is told once of a pod: the same is said in several places, and a
        sentence of the scheduler's stands for as long as it does not change."""
        told = self.what
        if told.what in SENTENCES:
            return told.what, told.container, told.message
        if told.what in ("node_not_ready", "node_ready"):
            return told.what, str(self.time_ns)
        if told.container:
            return told.what, told.container, str(told.restarts)
        return (told.what,)


# ── the pod's own object ──────────────────────────────────────────────────────────────────────


def about(pod: Thing) -> PodTold:
    """Which pod it is; nothing has happened to it yet."""
    meta, workload = part(pod, "metadata"), whose(pod)
    return PodTold(
        pod=text(meta, "name"),
        namespace=text(meta, "namespace"),
        uid=text(meta, "uid"),
        node=text(part(pod, "spec"), "nodeName"),
        workload=f"{workload.kind}/{workload.name}" if workload else "",
        workload_uid=workload.uid if workload else "",
    )


def is_over(pod: Thing) -> bool:
    return text(part(pod, "status"), "phase") in OVER


def told_of(pod: Thing) -> list[Told]:
    """All that it says now, in order of time."""
    found = list(_all_of(_Look(pod)))
    return sorted(found, key=lambda told: (told.time_ns, told.key))


def told_of_gone(pod: Thing, now_ns: int) -> list[Told]:
    """The same of its last state.  A pod that was deleted at once says no time: it was now."""
    found = told_of(pod)
    if is_over(pod) or any(told.what.what == "deleted" for told in found):
        return found
    return [*found, gone_unseen(about(pod), now_ns)]


def gone_unseen(pod: PodTold, now_ns: int) -> Told:
    """Nobody saw it go."""
    return Told(now_ns // _SECOND_NS * _SECOND_NS, replace(pod, what="deleted"))


class _Look:
    """A pod, as one looks at it."""

    def __init__(self, pod: Thing) -> None:
        self.pod, self.status, self.spec = pod, part(pod, "status"), part(pod, "spec")
        self.about = about(pod)
        self.phase, self.reason = text(self.status, "phase"), text(self.status, "reason")
        self.message = text(self.status, "message")
        self.conditions = {
            text(each, "type"): each for each in parts(self.status.get("conditions"))
        }

    def told(
        self,
        what: What,
        time_ns: int,
        reason: str = "",
        message: str = "",
        *,
        container: str = "",
        restarts: int = 0,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> Told:
        return Told(
            time_ns,
            replace(
                self.about,
                what=what,
                reason=reason[:LONGEST_MESSAGE],
                message=message[:LONGEST_MESSAGE],
                container=container,
                restarts=restarts,
                exit_code=exit_code,
                signal=signal,
            ),
        )

    def is_true(self, condition: str) -> bool:
        return text(self.conditions.get(condition, {}), "status") == "True"

    def since_ns(self, condition: str) -> int | None:
        return moment_ns(self.conditions.get(condition, {}).get("lastTransitionTime"))

    @property
    def disruption(self) -> Thing:
        return self.conditions["DisruptionTarget"] if self.is_true("DisruptionTarget") else {}

    def unready_ns(self) -> int | None:
        """Since when it is known not to work any more."""
        for name in ("Ready", "ContainersReady"):
            if name in self.conditions and not self.is_true(name):
                return self.since_ns(name)
        return None


def _all_of(look: _Look) -> Iterator[Told]:
    if (time_ns := created_ns(look.pod)) is not None:
        yield look.told("created", time_ns)
    yield from _scheduling(look)
    yield from _images(look)
    yield from _containers(look)
    yield from _sent_away(look)
    yield from _end(look)


def _scheduling(look: _Look) -> Iterator[Told]:
    condition = look.conditions.get("PodScheduled", {})
    time_ns = look.since_ns("PodScheduled")
    if time_ns is None:
        return
    if look.is_true("PodScheduled"):
        yield look.told("scheduled", time_ns)
    elif reason := text(condition, "reason"):
        yield look.told("unschedulable", time_ns, reason, text(condition, "message"))


def _images(look: _Look) -> Iterator[Told]:
    # A container that waits says no time.  Events do, but they may be gone.
    time_ns = moment_ns(look.status.get("startTime")) or look.since_ns("PodScheduled")
    if time_ns is None:
        return
    for status in (*_statuses(look, "initContainerStatuses"), *_statuses(look)):
        waiting = part(status, "state", "waiting")
        if (reason := text(waiting, "reason")) in _NO_IMAGE:
            message, name = text(waiting, "message"), text(status, "name")
            yield look.told("pull_failed", time_ns, reason, message, container=name)


def _statuses(look: _Look, name: str = "containerStatuses") -> list[Thing]:
    return sorted(parts(look.status.get(name)), key=lambda status: text(status, "name"))


# ── containers ────────────────────────────────────────────────────────────────────────────────


def _containers(look: _Look) -> Iterator[Told]:
    # A sidecar is an init container that goes on: neither is told of when it begins.
    for status in _statuses(look, "initContainerStatuses"):
        yield from _lives(look, status, is_main=False)
    for status in _statuses(look):
        yield from _lives(look, status, is_main=True)


def _lives(look: _Look, status: Thing, *, is_main: bool) -> Iterator[Told]:
    name, number = text(status, "name"), _number(status, "restartCount") or 0
    now, before = part(status, "state"), part(status, "lastState")
    ended = part(before, "terminated")
    # While it waits to be started again, its last life is still the one that is counted.
    is_counted = "waiting" in now and text(ended, "reason") != _NOT_FOUND
    yield from _life(look, name, number if is_counted else max(number - 1, 0), before, is_main)
    if "waiting" not in now:
        yield from _life(look, name, number, now, is_main)


def _life(look: _Look, name: str, number: int, state: Thing, is_main: bool) -> Iterator[Told]:
    ended = part(state, "terminated")
    started_ns = _moment(ended or part(state, "running"), "startedAt")
    if is_main and started_ns is not None:
        yield look.told("started", started_ns, container=name, restarts=number)
    if not ended:
        return
    # A container that was not found any more has no time of its own.
    ended_ns = _moment(ended, "finishedAt") or look.unready_ns()
    if ended_ns is None:
        return
    reason = text(ended, "reason")
    yield look.told(
        "oom_killed" if reason == _OUT_OF_MEMORY else "container_ended",
        ended_ns,
        reason,
        text(ended, "message"),
        container=name,
        restarts=number,
        exit_code=_number(ended, "exitCode"),
        signal=_number(ended, "signal") or None,
    )


def _moment(thing: Thing, name: str) -> int | None:
    """Runtimes write a time that they do not know as the year 1 or 1970."""
    time_ns = moment_ns(thing.get(name))
    return time_ns if time_ns is not None and time_ns > 0 else None


def _number(thing: Thing, name: str) -> int | None:
    value = thing.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# ── its end ───────────────────────────────────────────────────────────────────────────────────


def _sent_away(look: _Look) -> Iterator[Told]:
    why, time_ns = look.disruption, look.since_ns("DisruptionTarget")
    cause, message = text(why, "reason"), look.message or text(why, "message")
    if why and time_ns is not None:
        by_status = _SENT_AWAY.get(look.reason)
        what = by_status or _DISRUPTIONS.get(cause, "evicted")
        yield look.told(what, time_ns, look.reason if by_status else cause, message)
        if cause == _BY_GARBAGE and look.about.node:
            yield look.told("node_not_ready", time_ns, cause, message)
    elif look.reason in _SENT_AWAY and (ended_ns := _ended_ns(look)) is not None:
        yield look.told(_SENT_AWAY[look.reason], ended_ns, look.reason, message)
    if look.reason == _NODE_LOST and (lost_ns := look.unready_ns()) is not None:
        yield look.told("node_not_ready", lost_ns, look.reason, message)
    if (deleted_ns := _deleted_ns(look.pod)) is not None:
        yield look.told("deleted", deleted_ns, cause, text(why, "message"))


def _deleted_ns(pod: Thing) -> int | None:
    """When somebody asked for it: the server writes when it must be over."""
    meta = part(pod, "metadata")
    time_ns = moment_ns(meta.get("deletionTimestamp"))
    if time_ns is None:
        return None
    return time_ns - (_number(meta, "deletionGracePeriodSeconds") or 0) * _SECOND_NS


def _end(look: _Look) -> Iterator[Told]:
    if look.phase in OVER and (time_ns := _ended_ns(look)) is not None:
        yield look.told("ended", time_ns, look.reason or look.phase, look.message)


def _ended_ns(look: _Look) -> int | None:
    """Of a pod that is over: when its last container was, or else when that was noticed."""
    statuses = [*_statuses(look, "initContainerStatuses"), *_statuses(look)]
    ends = [_moment(part(each, "state", "terminated"), "finishedAt") for each in statuses]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ends):
        return max(known)
    noticed = (
        look.since_ns("DisruptionTarget") if look.disruption else None,
        look.unready_ns(),
        max(known, default=None),
        moment_ns(look.status.get("startTime")),
        created_ns(look.pod),
    )
    return next((time_ns for time_ns in noticed if time_ns is not None), None)
