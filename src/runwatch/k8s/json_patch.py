"""The steps from one JSON value to another, as the API server takes them (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Step = dict[str, Any]


def steps(before: Any, after: Any, path: str = "") -> Iterator[Step]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name, value in after.items():
            inner = f"{path}/{_escaped(name)}"
            if name in before:
                yield from steps(before[name], value, inner)
            else:
                yield {"op": "add", "path": inner, "value": value}
        for name in before.keys() - after.keys():
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from steps(old, new, f"{path}/{at}")
        for value in after[len(before) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
