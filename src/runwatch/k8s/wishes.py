"""What labels and annotations of a pod, its owners and its namespace ask for.

The nearest to the pod decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.k8s.names import (
    CONTAINERS,
    EXEC,
    EXEMPT,
    EXEMPT_ORIGINAL,
    GROUP,
    MODE,
    NAME,
    OURS,
    USER,
    WATCH,
    WATCH_ORIGINAL,
)
from runwatch.k8s.settings import MODES, WebhookSettings, words
from runwatch.k8s.workloads import Chain
from runwatch.kube import Thing, labels, notes, part, parts, text

_SAID: Final = {"true": True, "false": False}
_MIRROR: Final = "kubernetes.io/config.mirror"
_LEVEL: Final = "pod-security.kubernetes.io/enforce"
_STRICT: Final = ("baseline", "restricted")
_SYSTEM: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")


@dataclass(frozen=True, slots=True)
class Wishes:
    mode: str = ""
    """ "": nobody says; or a word that we do not know."""
    starts: str = ""
    """How programs are begun that do not know us (`exec`): "", "true", "pythonpath"."""
    containers: Sequence[str] = ()
    name: str = ""
    group: str = ""
    user: int | None = None
    level: str = ""
    """Of Pod Security in the namespace, where it forbids the folders of a node."""


def is_watched(pod: Thing, chain: Chain, namespace: Thing) -> bool:
    for its in (labels(pod), *(link.labels for link in chain.links), labels(namespace)):
        if (said := said_by(its)) is not None:
            return said
    return False


def said_by(its_labels: Thing) -> bool | None:
    for name in (WATCH, WATCH_ORIGINAL):
        said = _SAID.get(str(its_labels.get(name, "")).lower())
        if said is not None:
            return said
    return None


def wishes(pod: Thing, chain: Chain, namespace: Thing) -> Wishes:
    places = [notes(pod), *(link.notes for link in chain.links), notes(namespace)]

    def nearest(name: str) -> str:
        return next((said for its in places if (said := text(its, name).strip())), "")

    user, level = nearest(USER), str(labels(namespace).get(_LEVEL, ""))
    starts = nearest(EXEC).lower()
    return Wishes(
        nearest(MODE).lower(),
        "" if starts == "false" else starts,
        words(nearest(CONTAINERS)),
        nearest(NAME),
        nearest(GROUP),
        int(user) if user.isascii() and user.isdigit() and len(user) < 10 else None,
        level if level in _STRICT else "",
    )


def spared(pod: Thing, namespace: Thing, name: str, settings: WebhookSettings, own: str) -> str:
    """Why this pod is never touched, whatever its labels say; "" if nothing forbids it.

    `own`: our own namespace.  `namespace` may be empty: it is not known yet.
    """
    if name == own or name in settings.exempt_namespaces:
        return "namespace"
    if any(labels(namespace).get(each) == "true" for each in (EXEMPT, EXEMPT_ORIGINAL)):
        return "exempt"
    if labels(pod).get(OURS[0]) == OURS[1]:
        return "ours"
    kinds = {each.get("kind") for each in parts(part(pod, "metadata").get("ownerReferences"))}
    if _MIRROR in notes(pod) or "Node" in kinds:
        return "static"
    return "windows" if "windows" in _systems(pod) else ""


def _systems(pod: Thing) -> Iterator[str]:
    spec = part(pod, "spec")
    yield text(part(spec, "os"), "name")
    for each in _SYSTEM:
        yield text(part(spec, "nodeSelector"), each)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for term in parts(part(spec, "affinity", "nodeAffinity", required).get("nodeSelectorTerms")):
        for asked in parts(term.get("matchExpressions")):
            if asked.get("key") in _SYSTEM and asked.get("operator") == "In":
                yield from map(str, asked.get("values") or ())


def mode_of(
    wished: Wishes, settings: WebhookSettings, *, has_sidecars: bool, warnings: list[str]
) -> str:
    """Where the pod's agent is.  What the cluster would refuse is not chosen."""
    mode = wished.mode or settings.mode
    if mode not in MODES:
        warnings.append(f"{MODE} is {mode!r}, and not {', '.join(MODES)}: {settings.mode} is used")
        mode = settings.mode
    if mode == "node" and wished.level:
        warnings.append(
            f"Pod Security is {wished.level!r} in this namespace, so no folder of the node may be "
            f"mounted: the agent is a sidecar ({MODE}=sidecar says so without this warning)"
        )
        mode = "sidecar"
    if mode != "sidecar":
        return mode
    if not settings.image:
        warnings.append("no agent: the webhook knows no image for it (RUNWATCH_WEBHOOK_IMAGE)")
    elif not has_sidecars:
        warnings.append("no agent: sidecars need Kubernetes 1.29; an older one would never start")
    else:
        return mode
    return "none"
