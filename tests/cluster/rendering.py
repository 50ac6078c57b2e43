"""How a stored object is shown: as it is, in another version, as an event of the newer form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.cluster.kinds import Kind
from tests.cluster.storage import Stored

Thing = dict[str, Any]

# Fields of a core Event, and what events.k8s.io calls them.
_EVENT = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE = {new: old for old, new in _EVENT.items()}


def shown(kind: Kind, stored: Stored) -> bytes:
    if stored.thing.get("apiVersion") == kind.api_version:
        return stored.raw
    return json.dumps(presented(kind, stored.thing)).encode()


def presented(kind: Kind, thing: Thing) -> Thing:
    if kind.group == "events.k8s.io":
        thing = {_EVENT.get(name, name): value for name, value in thing.items()}
    return {**thing, "apiVersion": kind.api_version}


def kept(kind: Kind, thing: Thing) -> Thing:
    """What is stored of an object that came in this version."""
    if kind.group == "events.k8s.io":
        told = {_CORE.get(name, name): value for name, value in thing.items()}
        return {**told, "apiVersion": "v1"}
    return thing


def listed(kind: Kind, found: Sequence[Stored], meta: Thing) -> bytes:
    """The items of the server's own kinds have no apiVersion and kind."""
    head = {"kind": kind.list_name, "apiVersion": kind.api_version, "metadata": meta}
    if kind.custom:
        items = [shown(kind, stored) for stored in found]
    else:
        items = [_bare(presented(kind, stored.thing)) for stored in found]
    return json.dumps(head)[:-1].encode() + b', "items": [' + b",".join(items) + b"]}"


def _bare(thing: Thing) -> bytes:
    left = {name: value for name, value in thing.items() if name not in ("apiVersion", "kind")}
    return json.dumps(left, separators=(",", ":")).encode()
