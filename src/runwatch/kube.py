"""Reads objects as the API server of Kubernetes writes them: parts that may be missing, times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

Thing = Mapping[str, Any]
"""An object, or a part of one."""


def part(thing: Thing, *names: str) -> Thing:
    """The object at this path; empty if there is none."""
    for name in names:
        value = thing.get(name)
        if not isinstance(value, Mapping):
            return {}
        thing = value
    return thing


def parts(value: object) -> Sequence[Thing]:
    """The objects in a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def listed(thing: Thing, name: str) -> list[Any]:
    """The list of this name; empty if there is none.  Anything else is a TypeError."""
    value = thing.get(name) or []
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return value


def text(thing: Thing, name: str) -> str:
    value = thing.get(name)
    return value if isinstance(value, str) else ""


def labels(thing: Thing) -> Thing:
    return part(thing, "metadata", "labels")


def notes(thing: Thing) -> Thing:
    """Its annotations."""
    return part(thing, "metadata", "annotations")


def moment_ns(written: object) -> int | None:
    """RFC 3339, as the server writes it: 2026-01-31T12:00:00Z."""
    if not isinstance(written, str) or not re.search(r"(Z|[+-]\d\d:\d\d)$", written):
        return None
    try:
        return round(datetime.fromisoformat(written).timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError):
        return None


def written(time_ns: int) -> str:
    """A time as the server writes it, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def created_ns(thing: Thing) -> int | None:
    return moment_ns(part(thing, "metadata").get("creationTimestamp"))


class Owner(NamedTuple):
    """An owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """ "" for the core's own."""
        return self.api_version.rpartition("/")[0]

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.group, self.kind


def owners(thing: Thing) -> Iterator[Owner]:
    """Those that control it: at most one, as the server has it."""
    for each in parts(part(thing, "metadata").get("ownerReferences")):
        if each.get("controller"):
            yield Owner(*(text(each, key) for key in ("apiVersion", "kind", "name", "uid")))


def path_of(api_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Where the API server has an object, or with no name all of them."""
    start = f"/apis/{quote(api_version)}" if "/" in api_version else f"/api/{quote(api_version)}"
    inside = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"{start}{inside}/{quote(plural)}" + (f"/{quote(name)}" if name else "")
