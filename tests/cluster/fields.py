"""`managedFields`: who set which field, and when.

Each list is one field here; a real server takes items of some lists apart.  The time of an entry is
when its manager last changed any field of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from typing import Any, Final, NamedTuple

Thing = dict[str, Any]
Path = tuple[str, ...]

_SERVERS_OWN: Final = frozenset(
    {
        "uid",
        "name",
        "namespace",
        "generation",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)


class Writer(NamedTuple):
    manager: str
    operation: str = "Update"
    subresource: str = ""


def told(before: Thing | None, after: Thing, who: Writer, time: str) -> list[Thing]:
    """The entries of `after`, which came from `before` by `who`."""
    old, new = dict(_leaves(before or {})), dict(_leaves(after))
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    lost = old.keys() - new.keys()
    mine: Thing | None = None
    entries: list[Thing] = []
    for entry in ((before or {}).get("metadata") or {}).get("managedFields") or ():
        has = set(_paths(entry["fieldsV1"]))
        if _writer(entry) == who:
            mine = entry = {**entry, "fieldsV1": _tree((has | changed) - lost)}
            if changed or has & lost:
                entry["time"] = time
        else:
            entry = {**entry, "fieldsV1": _tree(has - changed - lost)}
        if entry["fieldsV1"]:
            entries.append(entry)
    if mine is None and changed:
        entries.append(_entry(who, after["apiVersion"], time, changed))
    return entries


def _entry(who: Writer, api_version: str, time: str, changed: Set[Path]) -> Thing:
    entry: Thing = {
        "manager": who.manager,
        "operation": who.operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(changed),
    }
    if who.subresource:
        entry["subresource"] = who.subresource
    return entry


def _writer(entry: Thing) -> Writer:
    return Writer(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every field that somebody sets, with its value as text."""
    if not isinstance(value, dict) or (path and not value):
        yield path, json.dumps(value, sort_keys=True)
        return
    for name, inner in value.items():
        at_root = path == () and name in ("apiVersion", "kind")
        if not at_root and not (path == ("metadata",) and name in _SERVERS_OWN):
            yield from _leaves(inner, (*path, name))


def _tree(paths: Set[Path]) -> Thing:
    tree: Thing = {}
    for path in sorted(paths):
        at = tree
        for name in path:
            at = at.setdefault(f"f:{name}", {})
    return tree


def _paths(tree: Thing, path: Path = ()) -> Iterator[Path]:
    for name, inner in tree.items():
        inside = (*path, name.removeprefix("f:"))
        if inner:
            yield from _paths(inner, inside)
        else:
            yield inside
