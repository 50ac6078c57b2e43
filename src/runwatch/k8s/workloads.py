"""Whose pod it is: from a pod up its owners to the workload that somebody has submitted.

Pod → Job → JobSet → TrainJob; Pod → RayCluster → RayJob; Pod → StatefulSet → LeaderWorkerSet, or by
way of the group's leader, a pod; Pod → ReplicaSet → Deployment; Pod → PyTorchJob.  Kinds that this
file does not know are found by the API server's own list of its kinds.  What only starts workloads
again and again (a CronJob) is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.remembered import Remembered
from runwatch.kube import Owner, Thing, labels, notes, owners, part, parts, path_of, text

DEEPEST: Final = 8
KEEP_SECONDS: Final = 10.0
KINDS_SECONDS: Final = 600.0
_MISSING: Final = (403, 404, 410)

PLURALS: Final[Mapping[tuple[str, str], str]] = {
    ("", "Pod"): "pods",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
    ("batch", "CronJob"): "cronjobs",
    ("batch.volcano.sh", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("kubeflow.org", "JAXJob"): "jaxjobs",
    ("kubeflow.org", "MPIJob"): "mpijobs",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org", "TFJob"): "tfjobs",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    ("ray.io", "RayCluster"): "rayclusters",
    ("ray.io", "RayJob"): "rayjobs",
    ("ray.io", "RayService"): "rayservices",
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
}
SCHEDULES: Final = frozenset(
    (
        ("batch", "CronJob"),
        ("argoproj.io", "CronWorkflow"),
        ("kubeflow.org", "ScheduledWorkflow"),
        ("ray.io", "RayCronJob"),
    )
)


@dataclass(frozen=True, slots=True)
class Link:
    """An owner, as far as we need it."""

    api_version: str
    kind: str
    name: str
    uid: str
    created: str = ""
    """RFC 3339, as the API server writes it; "" if it is not known."""
    plural: str = ""
    labels: Thing = field(default_factory=dict)
    notes: Thing = field(default_factory=dict)
    owner: Owner | None = None

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.api_version.rpartition("/")[0], self.kind


@dataclass(frozen=True, slots=True)
class Chain:
    """The owners of a pod, the nearest first."""

    links: Sequence[Link] = ()
    unread: Owner | None = None
    """Owns the last of them, and is gone or not for us to read."""

    @property
    def workload(self) -> Link | None:
        """None: the pod is its own."""
        works = [link for link in self.links if link.group_kind not in SCHEDULES]
        if works:
            return works[-1]
        if self.unread is None:
            return None
        owner = self.unread
        return Link(owner.api_version, owner.kind, owner.name, owner.uid)

    @property
    def parent(self) -> str:
        """The name of what starts the workload again and again, if something does."""
        last = self.unread or (self.links[-1] if self.links else None)
        return last.name if last is not None and last.group_kind in SCHEDULES else ""


class Workloads:
    """Asks the API server, each question once within some seconds."""

    def __init__(
        self, api: Api, *, keep_seconds: float = KEEP_SECONDS, clock: Clock = system_clock
    ) -> None:
        self._api = api
        self._links = Remembered[Link | None](keep_seconds, clock=clock)
        self._namespaces = Remembered[Thing](keep_seconds, clock=clock)
        self._kinds = Remembered[Mapping[str, str]](KINDS_SECONDS, clock=clock)
        self._version = Remembered[tuple[int, int]](KINDS_SECONDS, clock=clock)

    async def close(self) -> None:
        all_kept = (self._links, self._namespaces, self._kinds, self._version)
        await asyncio.gather(*(each.close() for each in all_kept))

    async def chain(self, pod: Thing, namespace: str) -> Chain:
        links: list[Link] = []
        seen: set[str] = set()
        owner = next(owners(pod), None)
        while owner is not None and owner.uid not in seen and len(links) < DEEPEST:
            seen.add(owner.uid)
            link = await self._link(owner, namespace)
            if link is None:
                return Chain(links, owner)
            links.append(link)
            owner = link.owner
        return Chain(links)

    async def namespace(self, name: str, *, seconds: float | None = None) -> Thing:
        """Its labels and annotations.  `seconds`: how old they may be."""

        async def ask() -> Thing:
            return _slim(await self._api.get(path_of("v1", "namespaces", "", name)))

        return await self._namespaces.get(name, ask, seconds=seconds)

    async def version(self) -> tuple[int, int]:
        """Of Kubernetes: (1, 33)."""

        async def ask() -> tuple[int, int]:
            told = await self._api.get("/version")
            return _number(text(told, "major")), _number(text(told, "minor"))

        return await self._version.get("", ask)

    async def _link(self, owner: Owner, namespace: str) -> Link | None:
        async def ask() -> Link | None:
            plural = await self._plural(owner)
            if not plural:
                return None
            try:
                thing = await self._api.get(
                    path_of(owner.api_version, plural, namespace, owner.name)
                )
            except ApiError as error:
                if error.status in _MISSING:
                    return None
                raise
            return _link_of(owner, plural, thing)

        # With its uid: an object that was made anew under the same name is another one.
        key = f"{owner.api_version}/{owner.kind}/{namespace}/{owner.name}/{owner.uid}"
        return await self._links.get(key, ask)

    async def _plural(self, owner: Owner) -> str:
        known = PLURALS.get(owner.group_kind)
        if known is not None:
            return known

        async def ask() -> Mapping[str, str]:
            try:
                told = await self._api.get(path_of(owner.api_version, "").rstrip("/"))
            except ApiError as error:
                if error.status in _MISSING:
                    return {}
                raise
            return {
                text(each, "kind"): text(each, "name")
                for each in parts(told.get("resources"))
                if each.get("namespaced") and "/" not in text(each, "name")
            }

        return (await self._kinds.get(owner.api_version, ask)).get(owner.kind, "")


def _link_of(owner: Owner, plural: str, thing: Thing) -> Link | None:
    about = part(thing, "metadata")
    if text(about, "uid") != owner.uid:
        return None
    return Link(
        owner.api_version,
        owner.kind,
        owner.name,
        owner.uid,
        text(about, "creationTimestamp"),
        plural,
        dict(labels(thing)),
        dict(notes(thing)),
        next(owners(thing), None),
    )


def _slim(thing: Thing) -> Thing:
    about: dict[str, Any] = {"labels": dict(labels(thing)), "annotations": dict(notes(thing))}
    return {"metadata": {"name": text(part(thing, "metadata"), "name"), **about}}


def _number(told: str) -> int:
    """Some servers write `29+`."""
    digits = told.rstrip("+")
    return int(digits) if digits.isascii() and digits.isdigit() else 0
