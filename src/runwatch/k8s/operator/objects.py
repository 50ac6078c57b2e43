"""Our objects: read as they are now, and written only if nobody wrote them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runwatch.clock import Clock
from runwatch.k8s.api import Api, ApiError
from runwatch.kube import Thing, moment_ns, part, parts, path_of, text, written

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
OVER: Final = (SUCCEEDED, FAILED)
LONGEST_MESSAGE: Final = 1_000
AT_ONCE: Final = 500
"""Objects of one answer, when all are listed."""


@dataclass(frozen=True, slots=True)
class Kind:
    api_version: str
    plural: str
    name: str


@dataclass(frozen=True, slots=True)
class Ref:
    """An object, by name; one that is made again under the same name has another uid."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return path_of(self.kind.api_version, self.kind.plural, self.namespace, self.name)


def ref_of(kind: Kind, thing: Thing) -> Ref:
    about = part(thing, "metadata")
    return Ref(kind, text(about, "namespace"), text(about, "name"))


async def read(api: Api, ref: Ref) -> Thing | None:
    """None: it is gone, or goes."""
    try:
        thing = await api.get(ref.path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return None if part(thing, "metadata").get("deletionTimestamp") else thing


async def listed(
    api: Api, kind: Kind, namespaces: Sequence[str], labels: str = "", fields: str = ""
) -> list[Thing]:
    """All of a kind; of a kind that the cluster does not know: none."""
    found: list[Thing] = []
    wanted = {"labelSelector": labels, "fieldSelector": fields, "limit": str(AT_ONCE)}
    for namespace in namespaces or ("",):
        path, more = path_of(kind.api_version, kind.plural, namespace), ""
        while True:
            try:
                page = await api.get(path, **wanted, **({"continue": more} if more else {}))
            except ApiError as error:
                if error.status != 404:
                    raise
                break
            found += parts(page.get("items"))
            more = text(part(page, "metadata"), "continue")
            if not more:
                break
    return found


async def write_status(api: Api, ref: Ref, thing: Thing, status: Mapping[str, Any]) -> Thing:
    """Replaces the fields named, if `thing` is still how it is: else ApiError 409."""
    version = text(part(thing, "metadata"), "resourceVersion")
    change = {"metadata": {"resourceVersion": version}, "status": status}
    return await api.patch(f"{ref.path}/status", change)


async def annotate(api: Api, ref: Ref, thing: Thing, notes: Mapping[str, str]) -> Thing:
    version = text(part(thing, "metadata"), "resourceVersion")
    change = {"metadata": {"resourceVersion": version, "annotations": notes}}
    return await api.patch(ref.path, change)


async def remove(api: Api, ref: Ref, thing: Thing) -> None:
    """That very object, and not one that was made under its name meanwhile."""
    try:
        await api.delete(ref.path, uid=uid_of(thing))
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def uid_of(thing: Thing) -> str:
    return text(part(thing, "metadata"), "uid")


def generation(thing: Thing) -> int:
    value = part(thing, "metadata").get("generation")
    return value if isinstance(value, int) else 0


def phase_of(thing: Thing) -> str:
    return text(part(thing, "status"), "phase")


def condition(
    thing: Thing, kind: str, is_true: bool, reason: str, message: str, now_ns: int
) -> Mapping[str, Any]:
    """Its time is when its status changed last."""
    status = "True" if is_true else "False"
    before = next(
        (each for each in parts(part(thing, "status").get("conditions")) if each["type"] == kind),
        {},
    )
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": cut(message),
        "lastTransitionTime": since or written(now_ns),
        "observedGeneration": generation(thing),
    }


def cut(words: str, most: int = LONGEST_MESSAGE) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def left_seconds(thing: Thing, ttl_seconds: float, clock: Clock) -> float | None:
    """Until an object that is over is deleted; None: never."""
    ended_ns = moment_ns(part(thing, "status").get("completionTime"))
    if ended_ns is None or ttl_seconds < 0:
        return None
    return max(0.0, ttl_seconds - (clock.wall_ns() - ended_ns) / 1e9)


def ranks_in_words(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:10]))
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
