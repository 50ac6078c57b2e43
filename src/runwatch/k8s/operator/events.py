"""Kubernetes Events on a workload: what happened to its runs, for `kubectl describe`.

An Event is named after what it tells, so whoever tells it again meets the one that is there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator.whose import Whose
from runwatch.kube import path_of, written

EVENTS: Final = ("v1", "events")
COMPONENT: Final = "runwatch.dev/operator"
LONGEST: Final = 1_000
"""The API server takes messages of 1,024 bytes."""
KEPT_NS: Final = 3600 * 1_000_000_000
"""The API server forgets Events after an hour: what ended before is not told again."""
REMEMBERED: Final = 4096
_BEGAN: Final = {"hang": "Stalled", "crash": "Crashed"}


class Told(NamedTuple):
    """What one Event says."""

    id: str
    kind: str
    """Warning or Normal."""
    reason: str
    message: str
    time_ns: int


def told_of(run: str, run_name: str, incident: Mapping[str, Any], now_ns: int) -> Iterator[Told]:
    """An incident that was named, and its end.  A note is no alarm."""
    id, kind = str(incident.get("id") or ""), str(incident.get("kind") or "")
    named_ns, closed_ns = _time(incident, "named_ns"), _time(incident, "closed_ns")
    text = str(incident.get("text") or "")
    if not id or not text or not named_ns or incident.get("severity") == "note":
        return
    if closed_ns and now_ns - closed_ns > KEPT_NS:
        return
    start = f"run {run_name}: "
    yield Told(_id(run, id), "Warning", _BEGAN.get(kind, "Incident"), _cut(start + text), named_ns)
    if closed_ns and kind != "crash":
        why = str(incident.get("why") or "it goes on")
        message = _cut(f"{start}no longer: {why}")
        yield Told(_id(run, id, "closed"), "Normal", "StallEnded", message, closed_ns)


class Events:
    """What was told as it is now is not told again."""

    def __init__(self, api: Api, identity: str) -> None:
        self._api, self._identity = api, identity
        self._told: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def tell(self, workload: Whose, told: Told) -> None:
        key = workload.uid, told.id
        if self._told.get(key) == told.message:
            return
        event = self._written(workload, told)
        name = event["metadata"]["name"]
        where = path_of(*EVENTS, workload.namespace)
        try:
            await self._api.create(where, event)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._renew(f"{where}/{name}", event)
        self._told[key] = told.message
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    async def _renew(self, path: str, event: Mapping[str, Any]) -> None:
        """It was told before; perhaps more is known by now."""
        change = {key: event[key] for key in ("message", "reason", "type", "lastTimestamp")}
        try:
            await self._api.patch(path, change)
        except ApiError as error:
            if error.status != 404:  # it was forgotten at this moment
                raise

    def _written(self, workload: Whose, told: Told) -> dict[str, Any]:
        moment = written(told.time_ns)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": _name(workload, told), "namespace": workload.namespace},
            "involvedObject": {
                "apiVersion": workload.api_version,
                "kind": workload.kind,
                "namespace": workload.namespace,
                "name": workload.name,
                "uid": workload.uid,
            },
            "type": told.kind,
            "reason": told.reason,
            "message": told.message,
            # One incident is one occurrence, however often it is looked at.
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity or COMPONENT,
        }


def _id(run: str, incident: str, more: str = "") -> str:
    return hashlib.sha256(f"{run}\n{incident}\n{more}".encode()).hexdigest()[:16]


def _name(workload: Whose, told: Told) -> str:
    return f"{workload.name[:200].rstrip('.-')}.{told.id}"


def _cut(words: str) -> str:
    """In bytes, as the server counts."""
    plain = words.encode(errors="replace")
    return words if len(plain) <= LONGEST else f"{plain[: LONGEST - 3].decode(errors='ignore')}…"


def _time(incident: Mapping[str, Any], name: str) -> int:
    value = incident.get(name)
    return value if isinstance(value, int) else 0
