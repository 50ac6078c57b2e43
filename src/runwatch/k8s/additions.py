"""What a watched pod gets beside variables: volumes, the agent as a sidecar, our files.

Every container of ours meets Pod Security's restricted profile, and asks for as much as it may use:
a pod with a guaranteed share keeps it, and a namespace with quotas takes the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.variables import literal, plain
from runwatch.kube import Thing, part, parts, text

RECORDS: Final = "runwatch-records"
FILES: Final = "runwatch-files"
TEMPORARY: Final = "runwatch-tmp"
AUTHORITY: Final = "runwatch-ca"
AUTHORITY_PLACE: Final = "/etc/runwatch/ca"
AGENT: Final = "runwatch-agent"
FILES_PLACE: Final = "/var/lib/runwatch-files"
SIDECAR_BYTES: Final = "1GiB"
"""Disk for all records of a pod until the head has them: the pod's own share of its node."""
LAST_SECONDS: Final = "20"
"""So long its agent waits for the head: less than the 30 s that a pod has to end."""
PROCESS_BYTES: Final = 256 << 20
_NOBODY: Final = 65532
_AGENT_NEEDS: Final = {"cpu": "100m", "memory": "256Mi"}
_FILES_NEED: Final = {"cpu": "250m", "memory": "128Mi"}
_STORAGE: Final = "ephemeral-storage"
_DISK: Final = ("256Mi", "2Gi")


def node_volume(settings: WebhookSettings) -> dict[str, Any]:
    # Made where it is missing: a node without an agent does not keep the pod from starting.
    host = {"path": settings.directory, "type": "DirectoryOrCreate"}
    return {"name": RECORDS, "hostPath": host}


def own_volume(name: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {}}


def authority_volume(settings: WebhookSettings) -> dict[str, Any]:
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    secret = {"secretName": settings.token_secret, "items": items, "optional": True}
    return {"name": AUTHORITY, "secret": secret}


def mount(volume: str, place: str, *, is_read_only: bool = False) -> dict[str, Any]:
    mounted: dict[str, Any] = {"name": volume, "mountPath": place}
    return mounted | {"readOnly": True} if is_read_only else mounted


def agent(pod: Thing, user: int | None, settings: WebhookSettings) -> dict[str, Any]:
    """Starts with the pod and ends after its program, as a container that is no program's."""
    variables = [
        plain("RUNWATCH_DIR", settings.directory),
        plain("RUNWATCH_NODE_BYTES", SIDECAR_BYTES),
        plain("RUNWATCH_LAST_SECONDS", LAST_SECONDS),
    ]
    if settings.head:
        variables.append(plain("RUNWATCH_HEAD", literal(settings.head)))
    if settings.ca:
        variables.append(plain("RUNWATCH_CA", f"{AUTHORITY_PLACE}/ca.crt"))
    secret = {"name": settings.token_secret, "key": "token", "optional": True}
    variables.append({"name": "RUNWATCH_TOKEN", "valueFrom": {"secretKeyRef": secret}})
    return {
        "name": AGENT,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "restartPolicy": "Always",
        "command": ["runwatch", "agent", "--idle", "0"],
        "env": variables,
        "securityContext": security(pod, user),
        "volumeMounts": [mount(RECORDS, settings.directory), mount(TEMPORARY, "/tmp")],  # noqa: S108
    } | needs(pod, _AGENT_NEEDS, with_disk=True)


def files(pod: Thing, settings: WebhookSettings) -> dict[str, Any]:
    """Ends well whatever happens: without our files a program starts without us."""
    return {
        "name": FILES,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["runwatch", "k8s", "files", "--lenient", FILES_PLACE],
        "securityContext": security(pod, None),
        "volumeMounts": [mount(FILES, FILES_PLACE)],
    } | needs(pod, _FILES_NEED)


def needs(pod: Thing, most: Mapping[str, str], *, with_disk: bool = False) -> dict[str, Any]:
    """Nothing where the pod as a whole has a share: its containers' sum may not exceed that."""
    if part(pod, "spec", "resources"):
        return {}
    asked, bound = dict(most), dict(most)
    if with_disk:
        asked[_STORAGE] = _DISK[0]
        if _limits_disk(pod):
            bound[_STORAGE] = _DISK[1]
    return {"resources": {"requests": asked, "limits": bound}}


def _limits_disk(pod: Thing) -> bool:
    """The kubelet evicts a pod that takes more than its containers' limits together, and one that
    has none counts as nothing: were ours the only limit, it would be the program's, too."""
    spec = part(pod, "spec")
    containers = (*parts(spec.get("containers")), *parts(spec.get("initContainers")))
    return any(_STORAGE in part(each, "resources", "limits") for each in containers)


def security(pod: Thing, user: int | None) -> dict[str, Any]:
    """`user`: None is any that is not root: the pod's, else the image's.  The latter is not named,
    for some clusters give each namespace users of its own."""
    whole = part(pod, "spec", "securityContext").get("runAsUser")
    if user is None and whole == 0:
        user = _NOBODY
    is_root = user == 0
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": not is_root,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return context if user is None or user == whole else context | {"runAsUser": user}


def users(pod: Thing) -> set[int]:
    """As which the pod's programs run, as far as it says."""
    whole = part(pod, "spec", "securityContext").get("runAsUser")
    found = (
        part(each, "securityContext").get("runAsUser", whole)
        for each in parts(part(pod, "spec").get("containers"))
    )
    return {user for user in found if isinstance(user, int)}


def volume_named(wanted: Mapping[str, Any], volumes: list[Any]) -> str:
    """Its name in the pod, where it is put if it is not there; another may have the name."""
    name, number = wanted["name"], 1
    while True:
        there = next((each for each in parts(volumes) if text(each, "name") == name), None)
        if there is None:
            volumes.append(dict(wanted) | {"name": name})
            return str(name)
        if _source(there) == _source(wanted):
            return str(name)
        number += 1
        name = f"{wanted['name']}-{number}"


def _source(volume: Thing) -> object:
    """What it is, without what the API server fills in."""
    if "hostPath" in volume:
        return ("hostPath", part(volume, "hostPath").get("path"))
    return tuple(sorted(key for key in volume if key != "name"))
