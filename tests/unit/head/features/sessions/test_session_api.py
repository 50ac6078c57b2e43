"""Sessions over the HTTP API, of a real store and without a port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from runwatch.cli.asgi import Exchange
from runwatch.head.main import LocalHead
from runwatch.testing import FakeClock
from tests.unit.head.session_world import (
    SECOND,
    START,
    Node,
)


class Api:
    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.head = LocalHead(root, clock=self.clock)
        self.loop = asyncio.new_event_loop()

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        status, text = self.raw(path, body)
        return status, json.loads(text)

    def raw(self, path: str, body: Any = None) -> tuple[int, bytes]:
        said = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = Exchange(self.head.app, self.loop, f"/api/v1/sessions{path}", said)
        return answer.status, b"".join(answer.body())

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.head.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    yield made
    made.close()


def test_a_session_from_start_to_export(api: Api, tmp_path: Path) -> None:
    status, begun = api.ask("", {"name": "a", "metrics": ["gpu_memory"]})
    assert (status, begun["name"], begun["active"], begun["frames"]) == (200, "a", True, 0)
    node = Node(api.head.store)
    for second in range(3):
        node.sample(second, 0, gpu_utilization_percent=float(second))
    api.clock.now_ns = START + 10 * SECOND
    status, ended = api.ask("/a/stop", b"")
    assert (status, ended["active"], ended["frames"]) == (200, False, 3)
    assert ended["stretches"] == [{"start_ns": START, "end_ns": START + 10 * SECOND}]
    assert api.ask("/a")[1] == ended == api.ask(f"/{ended['id']}")[1]
    assert ended["missing_clients"] == ["node-1_node-1-42"], "it may have sampled until the end"
    assert api.ask("")[1] == {"sessions": [ended | {"missing_clients": None}]}
    assert [frame["gpu_util"] for frame in api.ask("/a/export")[1]["frames"]] == [[0], [1], [2]]
    assert api.ask("/a/export?compat=gswarm")[1]["frames"][2]["gpu_util"] == ["0.02"]
    status, made = api.raw("/a/export?format=parquet")
    (tmp_path / "a.parquet").write_bytes(made)
    [(count,)] = duckdb.read_parquet(str(tmp_path / "a.parquet")).count("*").fetchall()
    assert (status, count) == (200, 3)
    status, again = api.ask("/a/resume", {})
    assert (status, again["active"], len(again["stretches"])) == (200, True, 2)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("", {"name": "../x"}, 400, "bad_request"),
        ("", {"name": ""}, 400, "bad_request"),
        ("", {"nam": "x"}, 400, "bad_request"),
        ("", b"{", 400, "bad_request"),
        ("", {"name": "taken"}, 409, "active"),
        ("/nobody", None, 404, "not_found"),
        ("/nobody/stop", {}, 404, "not_found"),
        ("/nobody/resume", {}, 404, "not_found"),
        ("/nobody/export", None, 404, "not_found"),
        ("/taken/export?format=xml", None, 400, "bad_request"),
        ("/taken/stop", None, 405, "method_not_allowed"),
    ],
)
def test_what_is_refused(api: Api, path: str, body: Any, status: int, code: str) -> None:
    api.ask("", {"name": "taken"})
    found, told = api.ask(path, body)
    assert (found, told["error"]["code"]) == (status, code)
    assert [session["name"] for session in api.ask("")[1]["sessions"]] == ["taken"]


def test_a_name_that_needs_spelling_out(api: Api) -> None:
    api.ask("", {"name": "50% done? ü"})
    assert api.ask("/50%25%20done%3F%20%C3%BC")[1]["name"] == "50% done? ü"


def test_a_directory_that_is_only_read_takes_no_sessions(tmp_path: Path) -> None:
    head = LocalHead(tmp_path, in_memory=True)
    loop = asyncio.new_event_loop()
    try:
        answer = Exchange(head.app, loop, "/api/v1/sessions", b"{}")
        assert answer.status == 503
        assert b"can only be read" in b"".join(answer.body())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        head.close()
