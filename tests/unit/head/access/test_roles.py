"""The table of who may do what is whole, and nothing that is not in it is served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route

from runwatch.clock import system_clock
from runwatch.head.access import roles
from runwatch.head.features.gswarm.grpc import ProfilerService
from runwatch.head.features.gswarm.profiler import Profiler
from runwatch.head.features.otlp.grpc import OtlpServices
from runwatch.head.features.otlp.receiver import Receiver
from runwatch.head.features.sessions.api import SessionsApi
from runwatch.head.features.sessions.grpc import SessionsService
from runwatch.head.ingest import Ingest
from runwatch.head.main import LocalHead
from runwatch.head.stream import SpineService
from runwatch.store.duck.engine import DuckStore
from tests.apps import app_of


@pytest.fixture
def store() -> Iterator[DuckStore]:
    made = DuckStore.open(None)
    yield made
    made.close()


def test_every_route_is_in_the_table_and_nothing_else(store: DuckStore) -> None:
    served = {
        f"{method} {route.path}"
        for route in app_of(store).routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert served == set(roles.ROUTES)


def test_a_route_that_nobody_thought_of_is_named() -> None:
    forgotten = Route("/api/v1/new", lambda request: None, methods=["POST"])
    assert roles.unknown([forgotten]) == ["POST /api/v1/new"]


def test_every_grpc_method_is_in_the_table(tmp_path: Any) -> None:
    head = LocalHead(tmp_path)
    try:
        ingest: Ingest = head.ingest
        handlers = (
            SpineService(ingest).handler(),
            ProfilerService(
                Profiler(head.context.sessions), ingest, on_exit=lambda: None
            ).handler(),
            *OtlpServices(Receiver(ingest, system_clock)).handlers(),
            SessionsService(head.feature(SessionsApi)).handler(),
        )
        served = {name for handler in handlers for name in handler._method_handlers}
    finally:
        head.close()
    assert served == set(roles.METHODS)
    assert roles.of_method("/runwatch.v1.Spine/New") == "admin"


def test_what_changes_something_is_for_those_who_may() -> None:
    for name, need in roles.ROUTES.items():
        changes = not name.startswith("GET ") and not roles.takes_data(name)
        assert not changes or need in ("operate", "admin"), name
        assert not name.startswith("DELETE ") or need == "admin", name


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("ingest", {"ingest"}),
        ("view", {"view"}),
        ("operate", {"view", "operate"}),
        ("admin", {"ingest", "view", "operate", "admin"}),
        (None, set()),
    ],
)
def test_who_may_what(role: Any, may: set[str]) -> None:
    assert {need for need in roles.ROLES if roles.allows(role, need)} == may
    assert roles.allows(role, "anyone")


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/api/v1/runs/a b", "GET /api/v1/runs/{run}"),
        ("HEAD", "/api/v1/runs", "GET /api/v1/runs"),
        ("POST", "/api/v1/runs/x/captures/preflight", "POST /api/v1/runs/{run}/captures/preflight"),
        ("GET", "/viewers/xprof/a/b", "GET /viewers/xprof/{path:path}"),
        ("POST", "/api/v1/runs", None),
        ("GET", "/api/v1/runs/", None),
        ("GET", "//api/v1/runs", None),
    ],
)
def test_a_request_is_found_as_the_router_finds_it(
    method: str, path: str, name: str | None
) -> None:
    assert roles.route(method, path) == name
