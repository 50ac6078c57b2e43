"""The shape of what `runwatch status --json` prints, as `tests/fixtures/status/v1.json` pins it.

Programs read it.  A field that is added is added there; one that changes or goes makes another
version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

V1: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "status" / "v1.json").read_text()
)
_KINDS: Final = {
    bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null",
    dict: "object", list: "list",
}  # fmt: skip


def deviations(said: Any, shape: Any = V1, where: str = "status") -> Iterator[str]:
    """Where it is not as it should be, in words."""
    kind = _KINDS[type(said)]
    if isinstance(shape, str):
        if kind not in shape.split("|"):
            yield f"{where} is {kind}, not {shape}"
    elif isinstance(shape, list):
        if kind != "list":
            yield f"{where} is {kind}, not a list"
            return
        for each in said:
            yield from deviations(each, shape[0], f"{where}[]")
    elif kind != "object":
        if kind != shape.get("_or"):
            yield f"{where} is {kind}, not an object"
    else:
        fields = {name: inner for name, inner in shape.items() if name != "_or"}
        for name in sorted(fields.keys() ^ said.keys()):
            yield f"{where}.{name} is {'missing' if name in fields else 'not in the shape'}"
        for name in fields.keys() & said.keys():
            yield from deviations(said[name], fields[name], f"{where}.{name}")
