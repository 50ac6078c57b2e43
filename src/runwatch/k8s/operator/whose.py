"""Whose pod it is: the workload that the webhook wrote on it."""

from __future__ import annotations

import json
from typing import NamedTuple

from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.names import WATCHED, WORKLOAD
from runwatch.kube import Thing, labels, notes, part, path_of, text


class Whose(NamedTuple):
    """A workload; one that is made again under the same name has another uid."""

    namespace: str
    api_version: str
    kind: str
    plural: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return path_of(self.api_version, self.plural, self.namespace, self.name)


def whose(pod: Thing) -> Whose | None:
    """None: nobody watches the pod.  A pod that nobody owns is its own."""
    about = part(pod, "metadata")
    if text(labels(pod), WATCHED) != "true":
        return None
    try:
        told = json.loads(text(notes(pod), WORKLOAD))
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    namespace = text(about, "namespace")
    if text(told, "kind") == "Pod" and not text(told, "uid"):
        return Whose(namespace, "v1", "Pod", "pods", text(about, "name"), text(about, "uid"))
    found = Whose(
        namespace, *(text(told, key) for key in ("apiVersion", "kind", "plural", "name", "uid"))
    )
    return found if all(found) else None


async def is_there(api: Api, workload: Whose) -> bool:
    """Whether it is what the pod says: anybody may write an annotation."""
    try:
        found = await api.get(workload.path)
    except ApiError as error:
        # Of a kind that we may not read, nobody can say.
        if error.status in (403, 404):
            return False
        raise
    return text(part(found, "metadata"), "uid") == workload.uid
