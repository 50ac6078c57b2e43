"""Kubernetes: asks the API server, with the agent's own service account.

A pod does not know when it was created (the downward API has no such field), so the agent asks the
server about the pod and the workload that made it.  The service account needs `get` on pods and on
jobs, jobsets or whatever made the pod.  If it may read only the pod, the pod's times are used.

The wait begins when the workload was created: a Job that is suspended (by Kueue, say) has no pods
yet.  A workload that failed before has run since it was created: then the wait begins when this pod
was created in place of another.  The wait ends when the pod's first container started, or, if a
container was restarted, when the pod was given its node.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from runwatch.agent.queues.base import ANSWER_SECONDS, Job, NoAnswer, Waited
from runwatch.files import read_followed
from runwatch.kube import created_ns, labels, moment_ns, owners, part, parts, path_of

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MOST_BYTES: Final = 4 << 20
_GENERATIONS: Final = 3
# Workloads made for one piece of work: no CronJob, which makes many, and no services.
_WORKLOADS: Final = (
    ("batch", "Job"), ("jobset.x-k8s.io", "JobSet"), ("batch.volcano.sh", "Job"),
    ("trainer.kubeflow.org", "TrainJob"), ("kubeflow.org", "PyTorchJob"),
    ("kubeflow.org", "TFJob"), ("kubeflow.org", "JAXJob"), ("kubeflow.org", "MPIJob"),
)  # fmt: skip
_FAILURES: Final = ("failed", "restarts", "retryCount")
_RESTART_LABEL: Final = "jobset.sigs.k8s.io/restart-attempt"


class Kubernetes:
    name = "kubernetes"

    def __init__(
        self, *, account: Path = ACCOUNT, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`account`, `environment`: the agent's own, so that its token goes to no other server."""
        self._account = account
        self._environment = environment

    def job(self, environment: Mapping[str, str], root: Path) -> Job | None:
        """The process's pod.  A pod's host name is its name, unless it uses its node's network."""
        if not environment.get("KUBERNETES_SERVICE_HOST"):
            return None
        pod = environment.get("POD_NAME") or environment.get("HOSTNAME", "")
        namespace = environment.get("POD_NAMESPACE") or _read(
            root / ACCOUNT.relative_to("/") / "namespace"
        )
        if not pod or not namespace:
            return None
        return Job(f"{namespace}/{pod}")

    def ask(self, job: Job) -> Waited:
        namespace, _, name = job.name.partition("/")
        pod = self._get(f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")
        created = created_ns(pod)
        if created is None:
            raise NoAnswer("the pod does not say when it was created")
        above, first = pod, not _failed_before(pod)
        for _ in range(_GENERATIONS):
            place = _maker(above, namespace)
            if not first or place is None:
                break
            try:
                above = self._get(place)
            except NoAnswer:
                break  # the account may read the pod, not its workload
            first = not _failed_before(above)
            if first:
                created = min(created, created_ns(above) or created)
        return Waited(created, granted(pod))

    def _get(self, path: str) -> Mapping[str, Any]:
        host = self._environment.get("KUBERNETES_SERVICE_HOST")
        port = self._environment.get("KUBERNETES_SERVICE_PORT") or "443"
        token = _read(self._account / "token")
        if not host or not token:
            raise NoAnswer("no service account to ask with")
        trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        server = http.client.HTTPSConnection(host, int(port), timeout=ANSWER_SECONDS, context=trust)
        try:
            server.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = server.getresponse()
            if answer.status != 200:
                raise NoAnswer(f"{path}: {answer.status}")
            thing = json.loads(answer.read(MOST_BYTES))
        except http.client.HTTPException as error:
            raise NoAnswer(f"{path}: {type(error).__name__}") from error
        finally:
            server.close()
        if not isinstance(thing, dict):
            raise NoAnswer(f"{path} is no object")
        return thing


def granted(pod: Mapping[str, Any]) -> int | None:
    """When the first container started; if one was restarted, when the pod was given its node."""
    status = part(pod, "status")
    containers = parts(status.get("containerStatuses"))
    started = [
        moment_ns(part(container, "state", "running").get("startedAt"))
        for container in containers
        if not container.get("restartCount")
    ]
    known = [at for at in started if at is not None]
    if known and len(known) == len(containers):
        return min(known)
    for condition in parts(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return moment_ns(condition.get("lastTransitionTime"))
    return None


def _maker(thing: Mapping[str, Any], namespace: str) -> str | None:
    """The API path of the workload that made this pod or workload."""
    for owner in owners(thing):
        if (owner.group, owner.kind) in _WORKLOADS:
            return path_of(owner.api_version, f"{owner.kind.lower()}s", namespace, owner.name)
    return None


def _failed_before(thing: Mapping[str, Any]) -> bool:
    marks = labels(thing)
    status = part(thing, "status")
    return marks.get(_RESTART_LABEL, "0") != "0" or any(status.get(name) for name in _FAILURES)


def _read(path: Path) -> str:
    try:
        return read_followed(path, MOST_BYTES).decode().strip()
    except (OSError, ValueError):
        return ""
