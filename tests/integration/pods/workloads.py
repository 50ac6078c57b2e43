"""Workloads of the tests: what their controllers make of them, and what the webhook adds."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runwatch.clock import system_clock
from runwatch.k8s.inject import inject
from runwatch.k8s.names import EXEC, WATCH
from runwatch.k8s.wishes import is_watched
from runwatch.k8s.workloads import Chain, Link
from tests.integration.pods import release

USER: Final = 1000
PROGRAMS: Final = "/programs"
"""Where a pod has those of `programs/`."""
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_numbers: Final = itertools.count(1)
Made = dict[str, Any]


@dataclass(frozen=True)
class JobSet:
    """One with a single replicated job of as many pods as there are ranks."""

    name: str
    command: Sequence[str]
    image: str = "theirs"
    user: int = USER
    restricted: bool = False
    """Its pods meet Pod Security's profile of that name."""
    env: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=lambda: {WATCH: "true"})
    memory: str = ""
    namespace: str = "research"
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def pod(self, rank: int = 0) -> Made:
        """As the controllers of JobSets and Jobs make it; never the same name twice."""
        job = f"{self.name}-workers-0"
        about = {
            "jobset.sigs.k8s.io/jobset-name": self.name,
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
            "jobset.sigs.k8s.io/job-index": "0",
            "batch.kubernetes.io/job-name": job,
            _INDEX: str(rank),
        }
        index = {"fieldRef": {"fieldPath": f"metadata.annotations['{_INDEX}']"}}
        env: list[Made] = [{"name": name, "value": value} for name, value in self.env.items()]
        env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": index})
        container: Made = {
            "name": "trainer",
            "image": self.image,
            "command": list(self.command),
            "env": env,
            "volumeMounts": [{"name": "programs", "mountPath": PROGRAMS}],
        }
        if self.restricted:
            nothing = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            container["securityContext"] = nothing
        if self.memory:
            container["resources"] = {"limits": {"memory": self.memory}}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{job}-{rank}-{next(_numbers):05x}",
                "namespace": self.namespace,
                "uid": str(uuid.uuid4()),
                "labels": dict(about),
                "annotations": dict(about),
                "ownerReferences": [{**owner, "uid": f"job-of-{self.uid}"}],
            },
            "spec": {
                "hostname": f"{job}-{rank}",
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsUser": self.user,
                    "runAsGroup": self.user,
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
                "volumes": [{"name": "programs", "configMap": {"name": "programs"}}],
            },
        }

    @property
    def chain(self) -> Chain:
        created = "2026-11-19T06:00:00Z"
        job = Link("batch/v1", "Job", f"{self.name}-workers-0", f"job-of-{self.uid}", created)
        top = Link(
            "jobset.x-k8s.io/v1alpha2", "JobSet", self.name, self.uid, created, "jobsets",
            dict(self.labels), dict(self.notes),
        )  # fmt: skip
        return Chain([job, top])

    def admitted(self, rank: int = 0, **settings: Any) -> Made:
        """As the webhook answers for it, and the API server stores it."""
        pod, namespace = self.pod(rank), {"metadata": {"labels": dict(self.namespace_labels)}}
        if not is_watched(pod, self.chain, namespace):
            return pod
        done = inject(
            pod,
            chain=self.chain,
            namespace=namespace,
            name=self.namespace,
            settings=replace(release.webhook(), **settings),
            has_sidecars=True,
            now_ns=system_clock.wall_ns(),
        )
        return copy.deepcopy(dict(done.pod))


def unchanged(name: str, *words: str, **more: Any) -> JobSet:
    """Its program knows nothing of Runwatch, nor does its image."""
    notes = {EXEC: "true", **more.pop("notes", {})}
    return JobSet(name, ["python", f"{PROGRAMS}/plain.py", *words], notes=notes, **more)


def ours(name: str, *words: str, **more: Any) -> JobSet:
    """Its program uses Runwatch."""
    command = ["python", f"{PROGRAMS}/ours.py", *words]
    return JobSet(name, command, **{"image": release.image(), **more})
