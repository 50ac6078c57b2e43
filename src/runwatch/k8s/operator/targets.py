"""What an MLDiagnosticsConnection asks for, of which pods, and the way in which they are captured.

Pure functions, but for the reading of pods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.k8s import names
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator import asking
from runwatch.k8s.operator.head import Head
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.storage import checked_location
from runwatch.k8s.operator.whose import whose
from runwatch.kube import Thing, notes, part, path_of, text
from runwatch.record.capture_limits import MAX_MS

MOST_PODS: Final = 1_000
NEWEST_RUNS: Final = 5
"""Of a workload: in these the pods are looked for."""
HEAD: Final = "head"
PROGRAMS: Final = "programs"


@dataclass(frozen=True, slots=True)
class Wanted:
    namespace: str
    pods: tuple[str, ...]
    port: int
    seconds: int
    location: str


def wanted_of(thing: Thing, settings: OperatorSettings) -> Wanted:
    """Raises UsageError with the value."""
    spec = part(thing, "spec", "triggerCapture")
    pods = [name.strip() for name in text(spec, "podName").split(",")]
    if not all(pods) or len(pods) > MOST_PODS:
        raise UsageError(
            f"podName is {text(spec, 'podName')[:200]!r}: names of pods with commas between, "
            f"none empty, at most {MOST_PODS}"
        )
    namespace = text(spec, "podNamespace")
    if not namespace or (settings.only and namespace not in settings.only):
        raise UsageError(
            f"podNamespace is {namespace!r}: this operator knows "
            f"{', '.join(settings.only) or 'every namespace that is named'} (RUNWATCH_NAMESPACES)"
        )
    return Wanted(
        namespace,
        tuple(dict.fromkeys(pods)),
        _within("capturePort", spec, 65535),
        _within("durationSeconds", spec, MAX_MS // 1000),
        checked_location(text(spec, "storageLocation"), settings),
    )


def _within(name: str, spec: Thing, most: int) -> int:
    value = spec.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UsageError(f"{name} is {value!r}: 1 to {most}")
    return value


# ── the way ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Way:
    """By which the pods are captured, as it is written on the object before anything is asked."""

    run: str = ""
    """The head is asked for this run.  Empty: the programs in the pods are, at their ports."""
    ranks: Mapping[str, Sequence[int]] | None = None
    """By pod."""

    def written(self) -> str:
        told: dict[str, Any] = {"way": HEAD if self.run else PROGRAMS}
        if self.run:
            told |= {"run": self.run, "ranks": {pod: list(of) for pod, of in self._ranks.items()}}
        return json.dumps(told, sort_keys=True)

    @property
    def _ranks(self) -> Mapping[str, Sequence[int]]:
        return self.ranks or {}

    @property
    def all_ranks(self) -> list[int]:
        return sorted({rank for ranks in self._ranks.values() for rank in ranks})

    def pod_of(self, rank: int) -> tuple[str, bool]:
        """Its name, and whether the rank is its only one."""
        for pod, ranks in self._ranks.items():
            if rank in ranks:
                return pod, len(ranks) == 1
        return "", False


def way_of(thing: Thing) -> Way | None:
    """None: nobody has decided it yet.  Raises UsageError for what none of us wrote."""
    told = text(notes(thing), names.CAPTURE)
    if not told:
        return None
    try:
        found = json.loads(told)
        if found["way"] == PROGRAMS:
            return Way()
        ranks = {str(pod): [int(rank) for rank in of] for pod, of in found["ranks"].items()}
        if found["way"] == HEAD and found["run"] and ranks:
            return Way(str(found["run"]), ranks)
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise UsageError(f"the annotation {names.CAPTURE} is {told[:200]!r}: none of us wrote that")


async def decided(head: Head, pods: Sequence[Thing]) -> Way:
    """The head's way if one run has a process in every one of the pods."""
    for workload in dict.fromkeys(filter(None, map(whose, pods))):
        for run in (await head.runs(workload.uid))[:NEWEST_RUNS]:
            id = text(run, "run")
            ranks = _ranks(await asking.pods_of(head, id), pods)
            if ranks is not None:
                return Way(id, ranks)
    return Way()


def _ranks(
    known: Mapping[asking.Pod, Sequence[Thing]], pods: Sequence[Thing]
) -> Mapping[str, Sequence[int]] | None:
    found: dict[str, list[int]] = {}
    for pod in pods:
        about = part(pod, "metadata")
        uid, name = text(about, "uid"), text(about, "name")
        processes = known.get((text(about, "namespace"), name), ())
        ranks = [int(each["rank"]) for each in processes if each.get("pod_uid") in (uid, "", None)]
        if not ranks:
            return None
        found[name] = sorted(ranks)
    return found


# ── pods ──────────────────────────────────────────────────────────────────────────────────────────


async def pods_of(api: Api, wanted: Wanted) -> list[Thing]:
    """Raises UsageError for one that cannot be captured."""
    return [await _pod(api, wanted.namespace, name) for name in wanted.pods]


async def _pod(api: Api, namespace: str, name: str) -> Thing:
    try:
        pod = await api.get(path_of("v1", "pods", namespace, name))
    except ApiError as error:
        if error.status != 404:
            raise
        raise UsageError(f"there is no pod {namespace}/{name}") from error
    phase = text(part(pod, "status"), "phase")
    if phase != "Running":
        raise UsageError(f"pod {namespace}/{name} is {phase or 'not started'}, and not Running")
    return pod


def address_of(pod: Thing, port: int) -> str:
    """Raises UsageError."""
    ip = text(part(pod, "status"), "podIP")
    if not ip:
        raise UsageError(f"pod {text(part(pod, 'metadata'), 'name')} has no address")
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
