"""The HTTP API, version 1, only grows: what was there on the day it landed is still there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from runwatch.cli.asgi import Exchange
from runwatch.store.duck import DuckStore
from tests.apps import app_of

FIXTURE = Path(__file__).parents[2] / "fixtures" / "http" / "openapi-v1.json"


def described() -> dict[str, Any]:
    store, loop = DuckStore.open(None), asyncio.new_event_loop()
    try:
        answer = Exchange(app_of(store), loop, "/api/v1/openapi.json")
        found: dict[str, Any] = json.loads(b"".join(answer.body()))
        return found
    finally:
        loop.close()
        store.close()


def test_nothing_was_taken_away() -> None:
    landed, now = json.loads(FIXTURE.read_text()), described()
    for path, operations in landed["paths"].items():
        assert path in now["paths"]
        for method, operation in operations.items():
            old = {p["name"] for p in operation.get("parameters", ())}
            current = now["paths"][path][method].get("parameters", ())
            assert old <= {p["name"] for p in current}, path
            added = {p["name"] for p in current if p.get("required")} - old
            assert not added, f"{path} now demands {added}"
    for name, schema in landed["components"]["schemas"].items():
        fields = now["components"]["schemas"][name].get("properties", {})
        assert set(schema.get("properties", {})) <= set(fields), name
