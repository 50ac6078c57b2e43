"""What a link of one run opens, and that everything else stays closed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runwatch.errors import NotFound
from runwatch.head.http import guests
from runwatch.head.http.guests import Ruling, Sight, narrowed, reads
from runwatch.store.duck.engine import DuckStore
from tests.apps import app_of

XPROF = "/viewers/xprof/data/plugin/profile"


def ruling(run: str, path: str, query: bytes) -> Ruling:
    """For a link of one run."""
    return guests.ruling(Sight(run), run.__eq__, path, query)


def of_project(path: str, query: bytes = b"") -> Ruling:
    """For a token of one project, which has run-1 and run-2 in it."""
    return guests.ruling(Sight(projects=("a",)), {"run-1", "run-2"}.__contains__, path, query)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/assets/index-1.js",
        "/favicon.svg",
        "/api/v1/access",
        "/api/v1/runs",
        "/viewers/perfetto/v1/main.js",
        "/viewers/xprof/",
        f"{XPROF}/",
        f"{XPROF}/runs",
        f"{XPROF}/bundle.js",
    ],
)
def test_what_says_nothing_of_runs_is_open(path: str) -> None:
    assert ruling("run-1", path, b"") == Ruling()


@pytest.mark.parametrize(
    ("path", "query", "runs"),
    [
        ("/api/v1/runs/run-1", b"", ("run-1",)),
        ("/api/v1/runs/llama/curves", b"metric=loss", ("llama",)),
        ("/api/v1/devices", b"run=run-2&limit=3", ("run-2",)),
        ("/api/v1/live", b"run=run-1&run=run-2", ("run-1", "run-2")),
    ],
)
def test_a_run_that_is_named_must_be_the_shared_one(
    path: str, query: bytes, runs: tuple[str, ...]
) -> None:
    assert ruling("run-1", path, query) == Ruling(runs=runs)


def test_what_is_about_all_runs_becomes_about_one() -> None:
    asked = ruling("a b", "/api/v1/live", b"")
    assert asked == Ruling(as_said=("a b",), query=b"run=a%20b")
    asked = ruling("x", "/api/v1/devices", b"limit=3")
    assert asked == Ruling(as_said=("x",), query=b"limit=3&run=x")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/metrics", b""),
        ("/status", b""),
        ("/clients", b""),
        ("/metrics/latest", b""),
        ("/profiling/sessions", b""),
        ("/api/v1/sessions", b""),
        ("/api/v1/sessions/x/export", b""),
        ("/api/v1/profiles", b""),
        ("/api/v1/commands/1", b""),
        ("/api/v1/runsx", b""),
        ("/viewers/", b""),
        ("/viewers/trace", b"session=s"),
        ("/viewers/trace", b"run=llama&session=s&file=f"),
        ("/viewers/trace", b"run=run-1&run=run-2&session=s&file=f"),
        ("/api/v1/profiles/run-2/s1/files/a.pb", b""),
        ("/api/v1/profiles/llama/s1", b""),
        (f"{XPROF}/data", b"tag=overview"),
        (f"{XPROF}/data", b"run=run-2/s1&tag=overview"),
        (f"{XPROF}/data", b"run=run-1/s1&run=run-2/s1"),
        (f"{XPROF}/data", b"run=run-1/s1;run=run-2/s1"),
        (f"{XPROF}/data", b"run=run-1/../run-2/s1"),
        (f"{XPROF}/hosts", b"run=run-10/s1"),
    ],
)
def test_everything_else_is_closed(path: str, query: bytes) -> None:
    assert "run-1" in ruling("run-1", path, query).why_not


def test_profiles_of_the_run_are_open() -> None:
    own = Ruling(as_said=("run-1",))
    assert ruling("run-1", "/api/v1/profiles/run-1/s1/files/a.pb", b"") == own
    assert ruling("a/b", "/viewers/trace", b"run=a%2Fb&session=s&file=f") == Ruling()


def test_profiles_of_the_run_open_in_xprof() -> None:
    assert ruling("run-1", f"{XPROF}/data", b"run=run-1%2Fs1&tag=overview") == Ruling()
    # Another run may be kept under the same folder.
    assert ruling("a/b", f"{XPROF}/data", b"run=a_b%2Fs1").why_not


def test_a_reader_may_only_look() -> None:
    assert reads("GET", "/api/v1/runs") == reads("HEAD", "/metrics") == ""
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"):
        assert reads(method, "/api/v1/sessions")
    assert reads("GET", "/api/v1/shares") and reads("GET", "/api/v1/shares/1")


def test_every_route_about_all_runs_is_closed_to_a_guest_of_one() -> None:
    """Whoever adds a route must say here whether such a guest may use it; till then he may not."""
    store = DuckStore.open(None)
    try:
        paths = {getattr(route, "path", "") for route in app_of(store).routes}
    finally:
        store.close()
    free = {path for path in paths if "{" not in path and not ruling("r", path, b"").why_not}
    api = {path for path in free if path.startswith("/api/")}
    assert api == {
        "/api/v1/access",
        "/api/v1/devices",
        "/api/v1/health",
        "/api/v1/live",
        "/api/v1/openapi.json",
        "/api/v1/where",
        "/api/v1/runs",
    }
    rest = {path for path in free - api if not path.endswith((".svg", ".png", ".ico", ".js"))}
    assert {path for path in rest if not path.startswith("/viewers/")} == {"/"}
    assert not rest & {"/viewers", "/viewers/", "/viewers/trace"}


def test_xprofs_list_is_narrowed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer() -> None:
        headers = [(b"accept-encoding", b"gzip"), (b"host", b"x")]
        scope, narrow = narrowed(
            "run-1".__eq__, {"path": f"{XPROF}/runs", "headers": headers}, send
        )
        assert scope["headers"] == [(b"host", b"x")]
        start = {"type": "http.response.start", "status": 200}
        await narrow({**start, "headers": [(b"Content-Length", b"99")]})
        body = json.dumps(["run-1/s1", "run-2/s1", "run-10/s", "run-1/s2"]).encode()
        await narrow({"type": "http.response.body", "body": body[:7], "more_body": True})
        await narrow({"type": "http.response.body", "body": body[7:]})

    asyncio.run(answer())
    assert json.loads(sent[1]["body"]) == ["run-1/s1", "run-1/s2"]
    assert sent[0]["headers"] == [(b"content-length", str(len(sent[1]["body"])).encode())]


# ── tokens of projects ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/runs", "/api/v1/live", "/api/v1/devices", "/api/v1/goodput", "/api/v1/profiles"],
)
def test_what_is_narrowed_or_says_nothing_is_open_to_a_project(path: str) -> None:
    assert of_project(path) == Ruling()


def test_runs_that_are_named_are_looked_at() -> None:
    assert of_project("/api/v1/runs/llama/stacks") == Ruling(runs=("llama",))
    assert of_project("/api/v1/live", b"run=b&run=c") == Ruling(runs=("b", "c"))
    assert of_project("/api/v1/deleted/x/restore") == Ruling(as_said=("x",))


def test_profiles_are_open_by_the_ids_of_runs() -> None:
    assert of_project("/api/v1/profiles/run-2/s1") == Ruling(as_said=("run-2",))
    assert of_project("/viewers/trace", b"run=run-2&session=s&file=f") == Ruling()
    assert of_project(f"{XPROF}/data", b"run=run-2%2Fs1&tag=overview") == Ruling()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/metrics", b""),
        ("/status", b""),
        ("/clients", b""),
        ("/profiling/start", b""),
        ("/api/v1/sessions", b""),
        ("/api/v1/captures", b""),
        ("/api/v1/commands/1/x", b""),
        ("/api/v1/tokens", b""),
        ("/api/v1/tokens/renew", b""),
        ("/api/v1/shares", b""),
        ("/api/v1/audit", b""),
        ("/api/v1/new", b""),
        ("/viewers/", b""),
        ("/api/v1/profiles/run-3/s1", b""),
        ("/viewers/trace", b"run=run-3&session=s&file=f"),
        ("/viewers/trace", b"run=run-1&run=run-2&session=s&file=f"),
        (f"{XPROF}/data", b"run=run-3/s1"),
        (f"{XPROF}/data", b"run=run-1"),
        (f"{XPROF}/data", b"run=run-1/../run-3/s1"),
    ],
)
def test_the_rest_is_closed_to_a_project(path: str, query: bytes) -> None:
    assert "this token is for project 'a'" in of_project(path, query).why_not


def test_only_what_was_looked_at_is_answered() -> None:
    scope = {guests.IDS: {"llama": "run-1"}}
    assert guests.by_id(scope, {"run": "llama", "limit": 3}) == {"run": "run-1", "limit": 3}
    assert guests.by_id(scope, {"run": None}) == {"run": None}
    assert guests.by_id({}, {"run": "x"}) == {"run": "x"}
    with pytest.raises(NotFound, match="no run with id or name 'run-3'"):
        guests.by_id(scope, {"run": "run-3"})
