"""Tables, as kubectl asks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from tests.cluster.kinds import Kind

Thing = dict[str, Any]
Cell = Callable[[Thing], Any]


def wanted(accept: str) -> bool:
    return "as=Table" in accept and "v=v1" in accept


def table(kind: Kind, things: Sequence[Thing], meta: Thing, now: float, include: str = "") -> Thing:
    columns = _columns(kind, now)
    rows = []
    for thing in things:
        row: Thing = {"cells": [cell(thing) for _, cell in columns]}
        if include == "Object":
            row["object"] = thing
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": thing["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [definition for definition, _ in columns],
        "rows": rows,
    }


def _columns(kind: Kind, now: float) -> list[tuple[Thing, Cell]]:
    columns: list[tuple[Thing, Cell]] = [
        (_column("Name", format="name"), lambda thing: thing["metadata"]["name"])
    ]
    if kind.columns:
        columns.extend((_defined(column), _cell(column, now)) for column in kind.columns)
        return columns
    for name, cell in _KNOWN.get(kind.plural, ()):
        columns.append((_column(name), cell))
    columns.append(
        (_column("Age"), lambda thing: age(thing["metadata"].get("creationTimestamp"), now))
    )
    return columns


def _column(name: str, *, type: str = "string", format: str = "", priority: int = 0) -> Thing:
    return {"name": name, "type": type, "format": format, "description": "", "priority": priority}


def _defined(column: Thing) -> Thing:
    return _column(
        column["name"],
        type=column["type"],
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )


def _cell(column: Thing, now: float) -> Cell:
    path = column["jsonPath"]

    def cell(thing: Thing) -> Any:
        found = at_path(thing, path)
        if not found:
            return "<unknown>" if column["type"] == "date" else None
        if column["type"] == "date":
            return age(found[0], now)
        if column["type"] == "string":
            return ",".join(_text(each) for each in found)
        return found[0]

    return cell


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_STEP = re.compile(r"\.([\w-]+)|\[(\d+|\*)\]|\['([^']+)'\]|\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]")


def at_path(thing: Thing, path: str) -> list[Any]:
    """The simple JSONPaths of printer columns: fields, `[0]`, `[*]`, `[?(@.type=="Ready")]`."""
    found: list[Any] = [thing]
    at = 0
    path = path.replace("\\.", "\0")
    while at < len(path):
        step = _STEP.match(path, at) or re.compile(r"\.([\w\0/-]+)").match(path, at)
        if step is None:
            raise ValueError(f"a printer column's path is not understood: {path!r} at {at}")
        found = [value for each in found for value in _stepped(each, step)]
        at = step.end()
    return [value for value in found if value is not None]


def _stepped(value: Any, step: re.Match[str]) -> list[Any]:
    parts = [*step.groups(), None, None, None, None, None][:5]
    name, index, quoted, key, wanted_value = parts
    if name or quoted:
        key_name = (name or quoted or "").replace("\0", ".")
        return [value.get(key_name)] if isinstance(value, dict) else []
    if not isinstance(value, list):
        return []
    if index == "*":
        return value
    if index is not None:
        return value[int(index) : int(index) + 1]
    return [each for each in value if isinstance(each, dict) and each.get(key) == wanted_value]


def age(written: Any, now: float) -> str:
    """As kubectl shows it: 5s, 3m, 7h, 2d."""
    if not isinstance(written, str):
        return "<unknown>"
    seconds = max(0, int(now - datetime.fromisoformat(written).timestamp()))
    if seconds < 120:
        return f"{seconds}s"
    for size, letter in ((86400 * 2, "d"), (7200, "h"), (120, "m")):
        if seconds >= size:
            unit = {"d": 86400, "h": 3600, "m": 60}[letter]
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"


def _field(path: str) -> Cell:
    def cell(thing: Thing) -> Any:
        found = at_path(thing, path)
        return _text(found[0]) if found else "<none>"

    return cell


def _ready(thing: Thing) -> str:
    statuses = (thing.get("status") or {}).get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in statuses)
    return f"{ready}/{len((thing.get('spec') or {}).get('containers') or [])}"


def _pod_status(thing: Thing) -> str:
    status = thing.get("status") or {}
    if thing["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for each in status.get("containerStatuses") or ():
        for word in ("waiting", "terminated"):
            reason = ((each.get("state") or {}).get(word) or {}).get("reason")
            if reason:
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _restarts(thing: Thing) -> str:
    statuses = (thing.get("status") or {}).get("containerStatuses") or []
    return str(sum(each.get("restartCount", 0) for each in statuses))


def _node_status(thing: Thing) -> str:
    conditions = at_path(thing, '.status.conditions[?(@.type=="Ready")].status')
    shown = "Ready" if conditions == ["True"] else "NotReady"
    return shown + (",SchedulingDisabled" if thing.get("spec", {}).get("unschedulable") else "")


def _involved(thing: Thing) -> str:
    about = thing.get("involvedObject") or thing.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_KNOWN: dict[str, Sequence[tuple[str, Cell]]] = {
    "pods": (("Ready", _ready), ("Status", _pod_status), ("Restarts", _restarts)),
    "nodes": (("Status", _node_status), ("Version", _field(".status.nodeInfo.kubeletVersion"))),
    "namespaces": (("Status", _field(".status.phase")),),
    "events": (
        ("Type", _field(".type")),
        ("Reason", _field(".reason")),
        ("Object", _involved),
        ("Message", lambda thing: thing.get("message") or thing.get("note") or ""),
    ),
    "leases": (("Holder", _field(".spec.holderIdentity")),),
    "customresourcedefinitions": (("Created At", _field(".metadata.creationTimestamp")),),
}
