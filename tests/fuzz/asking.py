"""Requests that nobody sends who means well, each made from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from tests.fuzz.hostile import NOW, TEXTS, value

NUMBERS: Final = (
    "0", "1", "-1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400",
    "99999999999999999999999", "nan", "inf", "", "0x10", " 5", "५", "1700000000000000000",
)  # fmt: skip
NAMES: Final = (
    "start", "end", "buckets", "limit", "offset", "metric", "rank", "host", "device", "attempt",
    "axis", "kind", "format", "newest_first", "within", "sort", "at", "width", "state", "name",
    "search", "group", "from", "until", "seconds", "cells", "statistic", "rows", "class", "x",
)  # fmt: skip
METHODS: Final = ("GET", "GET", "GET", "GET", "GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS")


class Request(NamedTuple):
    target: str
    said: bytes | None
    method: str


class Operation(NamedTuple):
    """One that is described: where, how, and what may be given, as OpenAPI says it."""

    path: str
    method: str
    parameters: Mapping[str, Mapping[str, Any]]


def operations(described: Mapping[str, Any]) -> list[Operation]:
    """All but the one that never ends, and the one that rightly takes away the run which must be
    well."""
    return [
        Operation(
            path,
            method.upper(),
            {p["name"]: p["schema"] for p in what.get("parameters", ()) if p["in"] == "query"},
        )
        for path, methods in described["paths"].items()
        for method, what in methods.items()
        if path != "/api/v1/live" and (path, method) != ("/api/v1/runs/{run}", "delete")
    ]


def request(draw: random.Random, operations: Sequence[Operation]) -> Request:
    """Half of them of a path that there is, with parameters that it has."""
    operation = draw.choice(operations)
    path = operation.path
    for part in [part for part in path.split("/") if part.startswith("{")]:
        path = path.replace(part, _quoted(draw, _named(draw, part)))
    known = operation.parameters
    given = [
        (name, _fitting(draw, schema) if draw.random() < 0.95 else _given(draw))
        for name, schema in known.items()
        if draw.random() < (0.9 if name == "metric" else 0.4)
    ]
    if draw.random() < 0.05:
        given += [(draw.choice(NAMES), _given(draw)) for _ in range(draw.choice((1, 2, 8)))]
    query = urlencode(given, errors="surrogatepass") if draw.random() < 0.97 else "%ff=%zz&&=&"
    method = operation.method if draw.random() < 0.9 else draw.choice(METHODS)
    said = None
    if method == "POST":
        said = json.dumps(value(draw)).encode() if draw.random() < 0.8 else draw.randbytes(50)
    return Request(f"{path}?{query}" if query else path, said, method)


def _fitting(draw: random.Random, schema: Mapping[str, Any]) -> str:
    """What the description allows, at its edges."""
    schema = schema.get("items", schema)
    if "enum" in schema:
        return str(draw.choice(schema["enum"]))
    if schema.get("type") == "integer":
        low, high = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
        middle = (0, 1, -1, NOW, NOW + 10**10, 2**62, 1000)
        return str(draw.choice((low, high, *(n for n in middle if low <= n <= high))))
    if schema.get("type") == "boolean":
        return draw.choice(("true", "false"))
    return _text(draw)


def _named(draw: random.Random, part: str) -> str:
    known = {"{run}": ("healthy", "hostile"), "{session}": ("s1", "night"), "{incident}": ("i1",)}
    return draw.choice(known[part]) if part in known and draw.random() < 0.9 else _text(draw)


def _quoted(draw: random.Random, text: str) -> str:
    return quote(text, safe="" if draw.random() < 0.9 else "/", errors="surrogatepass")


def _given(draw: random.Random) -> str:
    return draw.choice(NUMBERS) if draw.random() < 0.7 else _text(draw)


def _text(draw: random.Random) -> str:
    if draw.random() < 0.5:
        return draw.choice(("healthy", "hostile", "s1", "5", "night", "i1", "c1", "loss"))
    return draw.choice([text for text in TEXTS if len(text) < 5_000])
