"""The HTTP API over a real store: what it answers, whom it refuses, and that nothing breaks it."""

from __future__ import annotations

import json
import math
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx2
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runwatch.errors import StoreDamaged, UsageError
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.live import Live
from runwatch.head.settings import Pace
from runwatch.record import JournalId
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock, until
from tests.apps import app_of
from tests.integration.head_history import (
    Producer,
    agent,
    exited,
    fill,
    when,
)

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

NOW = when(120)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def filled() -> Iterator[Store]:
    """For those who only read."""
    opened = DuckStore.open(None)
    fill(opened)
    yield opened
    opened.close()


@pytest.fixture
def client(filled: Store) -> Iterator[TestClient]:
    with browser(filled) as opened:
        yield opened


@contextmanager
def browser(store: Store, base_url: str = "http://localhost", **more: Any) -> Iterator[TestClient]:
    app = app_of(store, clock=FakeClock(NOW), **more)
    with TestClient(app, base_url=base_url, raise_server_exceptions=False) as opened:
        yield opened


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    reply = client.get(f"/api/v1/{path}", params=parameters)
    assert reply.status_code == 200, reply.text
    return reply.json()


def error(reply: httpx2.Response) -> Any:
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert set(body) == {"error"} and {"code", "message"} <= set(body["error"])
    return body["error"]


# ── answers ────────────────────────────────────────────────────────────────────────────────────


def test_health(client: TestClient) -> None:
    found = get(client, "health")
    assert (found["status"], found["engine"], found["problem"]) == ("ok", "duckdb", "")
    assert found["hot_points"] > 0


def test_runs(client: TestClient) -> None:
    found = get(client, "runs")
    assert (found["total"], found["next_offset"]) == (5, None)
    by_id = {run["run"]: run for run in found["runs"]}
    states = {run: by_id[run]["state"] for run in sorted(by_id)}
    assert states == {
        "run-1": "running",
        "run-2": "completed",
        "run-3": "failed",
        "run-4": "lost",
        "run-5": "lost",
    }
    first = by_id["run-1"]
    assert (first["attempts"], first["ranks"], first["last_step"]) == (2, 2, 7)
    assert first["headline"] == {
        "metric": "loss",
        "value": 3.0,
        "step": 7,
        "time_ns": when(104),
    }
    assert by_id["run-3"]["headline"] is None and by_id["run-3"]["last_step"] is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"state": "failed"}, ["run-3"]),
        ({"state": ["failed", "completed"]}, ["run-3", "run-2"]),
        ({"group": "sweep"}, ["run-2"]),
        ({"group": "", "state": "failed"}, ["run-3"]),
        ({"name": "twin", "order": "name"}, ["run-4", "run-5"]),
        ({"name": "twin", "order": "-name"}, ["run-5", "run-4"]),
        ({"order": "-last", "limit": 2}, ["run-1", "run-2"]),
        ({"order": "started", "offset": 3}, ["run-2", "run-3"]),
        ({"name": "nobody"}, []),
    ],
)
def test_runs_are_filtered_ordered_and_paged(
    client: TestClient, asked: dict[str, Any], expected: list[str]
) -> None:
    assert [run["run"] for run in get(client, "runs", **asked)["runs"]] == expected


def test_pages_lead_through_all(client: TestClient) -> None:
    seen, offset = [], 0
    while offset is not None:
        page = get(client, "runs", limit=2, offset=offset)
        seen += [run["run"] for run in page["runs"]]
        offset = page["next_offset"]
    assert sorted(seen) == [f"run-{n}" for n in range(1, 6)]


def test_a_run_tells_its_history(client: TestClient) -> None:
    found = get(client, "runs/llama")
    assert found["run"] == "run-1"
    assert [a["state"] for a in found["history"]] == ["killed", "running"]
    assert found["history"][0]["reason"].startswith("rank 1 killed by SIGKILL, out of memory")


def test_a_name_of_several_runs_is_refused_with_their_ids(client: TestClient) -> None:
    reply = client.get("/api/v1/runs/twin")
    assert reply.status_code == 409
    assert sorted(error(reply)["choices"]) == ["run-4", "run-5"]
    assert get(client, "runs/run-4")["name"] == "twin"


def test_a_name_that_is_not_known_is_refused_with_what_may_be_meant(client: TestClient) -> None:
    wrong = error(client.get("/api/v1/runs/lama"))
    assert (wrong["code"], wrong["choices"]) == ("not_found", ["run-1"])
    assert "choices" not in error(client.get("/api/v1/runs/quite-another"))


def test_configs_are_merged_and_made_plain(client: TestClient) -> None:
    assert get(client, "runs/bert/configs") == {
        "run": "run-2",
        "user": {"lr": 0.2, "bad": "NaN", "text": "?"},
        "software": {"python": "3.11"},
        "system": {},
    }


def test_series_and_latest(client: TestClient) -> None:
    found = get(client, "runs/run-1/series", metric="loss")
    assert [(s["attempt"], s["rank"], s["latest"]["value"]) for s in found["series"]] == [
        (1, 0, 6.0),
        (1, 1, 7.0),
        (2, 0, 3.0),
        (2, 1, 4.0),
    ]
    points = get(client, "runs/run-1/latest", device="0", rank=1)["points"]
    assert [(p["metric"], p["step"], p["value"]) for p in points] == [("gpu_used_bytes", None, 1e9)]
    odd = get(client, "runs/bert/latest", metric="odd")["points"]
    assert odd[0]["value"] == "-Infinity"


def test_curves_by_step(client: TestClient) -> None:
    found = get(client, "runs/run-1/curves", metric="loss", axis="step", attempt=2, buckets=10)
    assert [curve["label"] for curve in found["curves"]] == ["loss · rank 0", "loss · rank 1"]
    curve = found["curves"][0]
    assert (curve["position"], curve["last"]) == ([3, 4, 5, 6, 7], [7.0, 6.0, 5.0, 4.0, 3.0])
    assert curve["count"] == [1] * 5


def test_curves_by_time_share_buckets_and_mark_what_is_not_finite(client: TestClient) -> None:
    asked = {"metric": ["loss", "odd"], "start": when(5), "end": when(15), "buckets": 2}
    loss, odd = get(client, "runs/bert/curves", **asked)["curves"]
    assert loss["position"] == [when(5), when(10)] and loss["count"] == [5, 5]
    assert math.isclose(loss["mean"][0], sum(1 / n for n in range(1, 6)) / 5)
    assert (odd["position"], odd["first"], odd["last"]) == ([when(5)], ["NaN"], ["-Infinity"])
    assert (odd["minimum"], odd["mean"], odd["nonfinite"]) == ([None], [None], [3])


def test_curves_of_nothing_are_no_curves(client: TestClient) -> None:
    empty = {"metric": "loss", "start": 5, "end": 5}
    assert get(client, "runs/bert/curves", **empty)["curves"] == []


def test_a_range_that_ends_before_it_starts_is_refused(client: TestClient) -> None:
    for path in ("curves?metric=loss&", "events?", "export?"):
        reply = client.get(f"/api/v1/runs/bert/{path}start=9&end=3")
        assert reply.status_code == 422
        assert "start=9 is after end=3" in error(reply)["message"]


def test_events(client: TestClient) -> None:
    found = get(client, "runs/bert/events", kind=["log", "run_end"], newest_first="true")["events"]
    assert [event["kind"] for event in found] == ["run_end", "log"]
    assert found[1]["body"]["value"] == {"deep": [1, "Infinity", {"x": None}]}
    assert len(get(client, "runs/bert/events", limit=2)["events"]) == 2
    inside = get(client, "runs/bert/events", start=when(6), end=when(7))["events"]
    assert {event["time_ns"] for event in inside} == {when(6)}


def test_processes(client: TestClient) -> None:
    found = get(client, "runs/run-1/processes")["processes"]
    assert [(p["attempt"], p["rank"], p["state"]) for p in found] == [
        (1, 0, "failed"),
        (1, 1, "killed"),
        (2, 0, "running"),
        (2, 1, "running"),
    ]
    assert (found[0]["exit_code"], found[1]["signal"]) == (1, "SIGKILL")


def test_a_process_that_is_seen_alive_is_running(filled: Store) -> None:
    with browser(filled, alive=lambda: {JournalId("j-twin-4")}) as client:
        assert get(client, "runs/run-4")["state"] == "running"
        assert get(client, "runs/run-5")["state"] == "lost"


def test_exports_agree(client: TestClient, tmp_path: Path) -> None:
    text = client.get("/api/v1/runs/run-1/export").text
    rows = client.get("/api/v1/runs/run-1/export", params={"format": "json"}).json()
    assert text.count("\r\n") - 1 == len(rows) == 26
    reply = client.get("/api/v1/runs/run-1/export?format=parquet&metric=loss&attempt=2&rank=1")
    (tmp_path / "p").write_bytes(reply.content)
    with duckdb.connect() as connection:
        found = connection.from_parquet(str(tmp_path / "p")).project("step, value").fetchall()
    assert found == [
        (row["step"], row["value"])
        for row in rows
        if (row["metric"], row["attempt"], row["process"]) == ("loss", 2, 1)
    ]
    assert len(found) == 5


def test_prometheus(client: TestClient) -> None:
    get(client, "runs")
    client.get("/api/v1/nowhere")
    text = client.get("/metrics").text
    assert 'runwatch_http_requests_total{route="/api/v1/runs",status="200"} 1.0' in text
    assert 'runwatch_http_requests_total{route="other",status="404"} 1.0' in text
    assert "runwatch_store_hot_points 41.0" in text


def test_the_page_needs_no_one_else(client: TestClient) -> None:
    reply = client.get("/", headers={"Accept": "text/html"})
    assert reply.headers["content-type"].startswith("text/html")
    assert "http://" not in reply.text and "https://" not in reply.text
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("role", ["child", "agent"])
def test_a_run_of_which_no_process_is_known_yet_is_none(store: Store, role: str) -> None:
    """A forked child's journal may come before that of the process which forked it."""
    Producer(store, "early", run="r", name="named", role=role).write([("loss", 1, 0, 0.5)])
    with browser(store) as client:
        for key in ("r", "named"):
            for path in ("", "/timeline", "/goodput", "/processes", "/configs"):
                assert client.get(f"/api/v1/runs/{key}{path}").status_code == 404, path
        assert get(client, "runs")["runs"] == []
        Producer(store, "grown", run="r", name="named").write([("loss", 1, 0, 0.5)])
        assert get(client, "runs/r")["run"] == "r"
        assert get(client, "runs/named/timeline")["run"] == "r"


# ── bad requests ───────────────────────────────────────────────────────────────────────────────

LONG = "x" * 10_000


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("runs?limt=3", 400, "unknown parameter 'limt'"),
        ("runs?limit=0", 400, "from 1 to 1000"),
        ("runs?limit=1&limit=2", 400, "given 2 times"),
        ("runs?limit=%2B5", 400, "'+5'"),
        ("runs?limit=1e3", 400, "'1e3'"),
        ("runs?limit=٣", 400, "whole number"),
        ("runs?limit=" + "9" * 5000, 400, "whole number"),
        ("runs?state=gone", 400, "not one of running, stalled"),
        ("runs?name=" + LONG, 400, "10000 characters"),
        ("runs?name=a%00b", 400, "control characters"),
        ("runs?name=%ff", 400, "not UTF-8"),
        ("runs?%ff=1", 400, "not UTF-8"),
        ("runs/bert/curves?metric=loss&buckets=10001", 400, "from 1 to 10000"),
        ("runs/bert/curves?metric=loss&start=9223372036854775808", 400, "start="),
        ("runs/bert/curves?metric=loss&axis=epoch", 400, "not one of time, step"),
        ("runs/bert/curves?metric=", 400, "0 characters"),
        ("runs/bert/curves", 400, "at least one metric"),
        ("runs/bert/events?newest_first=1", 400, "neither true nor false"),
        ("runs/bert/export?format=xml", 400, "not one of csv, json, parquet"),
        ("health?x=1", 400, "this route takes: none"),
        ("live?run=nobody", 404, "no run with id or name 'nobody'"),
        ("runs/nobody", 404, "'nobody'"),
        ("runs/nobody/export", 404, "'nobody'"),
        ("runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404, "nothing at"),
        ("runs/..%2Fhealth", 404, "nothing at"),
        ("runs/a%2Fb", 404, "nothing at"),
        ("runs/%00", 400, "control characters"),
        ("runs/%ff%fe", 400, "not UTF-8"),
        ("runs/" + LONG, 400, "10000 characters"),
        ("runs/", 404, "nothing at"),
        ("nowhere", 404, "openapi.json"),
        ("runs/brt", 404, "'brt': did you mean 'bert'? /api/v1/runs"),
        ("runs/run-22", 404, "did you mean 'run-2'"),
        ("runs/bert/curves?metric=los", 404, "no metric 'los': did you mean 'loss'?"),
        ("runs/bert/curves?metric=loss&metric=nothing", 404, "no metric 'nothing'; /api/v1/runs/"),
        ("runs/bert/latest?metric=los", 404, "did you mean 'loss'?"),
        ("runs/bert/export?metric=los", 404, "did you mean 'loss'?"),
        ("runs/llama/curves?metric=loss&rank=0&rank=99", 404, "no rank 99; it has ranks 0, 1"),
        ("runs/llama/latest?rank=7&rank=8", 404, "no ranks 7, 8; it has"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    client: TestClient, path: str, status: int, says: str
) -> None:
    reply = client.get("/api/v1/" + path)
    assert reply.status_code == status
    assert says in error(reply)["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_get(client: TestClient, method: str) -> None:
    reply = client.request(method, "/api/v1/runs")
    assert reply.status_code == 405 and "GET" in reply.headers["allow"]
    assert error(reply)["code"] == "method_not_allowed"


def test_a_large_body_is_refused(client: TestClient) -> None:
    reply = client.request("GET", "/api/v1/runs", content=b"x" * 1_000_001)
    assert reply.status_code == 413
    assert error(reply)["code"] == "too_large"


def test_head_requests_end(client: TestClient) -> None:
    for path in ("health", "runs", "live", "runs/bert/export"):
        reply = client.head(f"/api/v1/{path}")
        assert (reply.status_code, reply.content) == (200, b"")


def test_too_many_cells_are_refused_with_a_way_out(store: Store) -> None:
    wide = Producer(store, "wide")
    for device in range(201):
        wide.write([("loss", 1, 1, 1.0)], device=str(device))
    with browser(store) as client:
        reply = client.get("/api/v1/runs/run-1/curves?metric=loss&buckets=10000")
        assert reply.status_code == 422
        assert "narrow it by rank=" in error(reply)["message"]


class Broken:
    """A store whose files went bad under it."""

    def __init__(self, problem: Exception, store: Store) -> None:
        self._problem = problem
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "health":
            return self._store.health

        def fail(*_: Any, **__: Any) -> Any:
            raise self._problem

        return fail


def test_a_damaged_store_is_not_available(store: Store) -> None:
    with browser(Broken(StoreDamaged("hot.duckdb cannot be read"), store)) as client:
        reply = client.get("/api/v1/runs")
        assert (reply.status_code, error(reply)["code"]) == (503, "unavailable")
        assert "hot.duckdb" in error(reply)["message"]


def test_a_fault_of_ours_has_the_same_shape_and_tells_no_secrets(store: Store) -> None:
    with browser(Broken(ZeroDivisionError("secret"), store)) as client:
        reply = client.get("/api/v1/runs")
        assert (reply.status_code, error(reply)["code"]) == (500, "internal")
        assert "secret" not in reply.text


# ── access ─────────────────────────────────────────────────────────────────────────────────────

TOKEN = "correct horse ü"


@pytest.fixture
def guarded(filled: Store) -> Iterator[TestClient]:
    access = AccessSettings(token=TOKEN, loopback=False)
    with browser(filled, "http://gpu-17:8091", access=access) as opened:
        yield opened


def test_without_the_token_only_the_status_is_told(guarded: TestClient) -> None:
    assert get(guarded, "health") == {"status": "ok"}
    for path in ("/", "/metrics", "/api/v1/runs", "/api/v1/openapi.json", "/api/v1/live", "/x"):
        reply = guarded.get(path)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert error(reply)["code"] == "token_needed"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": TOKEN.encode()},
        {"Authorization": b"Basic " + TOKEN.encode()},
        {"Cookie": "runwatch=" + "0" * 64},
        {"Cookie": "runwatch="},
    ],
)
def test_wrong_tokens(guarded: TestClient, headers: dict[str, Any]) -> None:
    assert guarded.get("/api/v1/runs", headers=headers).status_code == 401


def test_wrong_tokens_in_the_address(guarded: TestClient) -> None:
    for query in ("token=", "token=wrong", "token=%ff", "token=wrong&token=" + TOKEN):
        reply = guarded.get(f"/api/v1/runs?{query}")
        assert reply.status_code == 401
        assert "set-cookie" not in reply.headers


def test_the_token_as_a_header(guarded: TestClient) -> None:
    headers = [(b"Authorization", b"bearer " + TOKEN.encode())]
    assert guarded.get("/api/v1/health", headers=headers).json()["engine"] == "duckdb"


def test_the_token_in_the_address_becomes_a_cookie(guarded: TestClient) -> None:
    reply = guarded.get("/", params={"token": TOKEN})
    assert reply.status_code == 200
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert TOKEN not in cookie
    assert get(guarded, "runs")["total"] == 5  # by the cookie, which the client kept
    foreign = guarded.get("/api/v1/runs", headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    own = guarded.get("/api/v1/runs", headers={"Origin": "http://gpu-17:8091"})
    assert own.status_code == 200


def test_the_token_may_stand_beside_other_parameters(guarded: TestClient) -> None:
    assert len(get(guarded, "runs", limit=2, token=TOKEN)["runs"]) == 2
    assert guarded.get("/api/v1/runs?limit=2&x=1").status_code == 400


def test_a_cookie_over_tls_stays_there(filled: Store) -> None:
    access = AccessSettings(token=TOKEN, loopback=False, tls=True)
    with browser(filled, "https://gpu-17", access=access) as client:
        assert "Secure" in client.get("/", params={"token": TOKEN}).headers["set-cookie"]


def test_an_open_address_without_a_token_cannot_be() -> None:
    with pytest.raises(UsageError, match="needs a token"):
        AccessSettings(token="", loopback=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8091", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8091", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8091", 403),
        ("localhost.evil.example", 403),
        ("[::2]", 403),
        ("", 403),
    ],
)
def test_without_a_token_we_answer_to_our_own_names_only(
    client: TestClient, host: str, status: int
) -> None:
    assert client.get("/api/v1/runs", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8091", 200),
        ("http://evil.example", 403),
        ("http://localhost:9999", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_other_pages_may_not_ask(client: TestClient, origin: str, status: int) -> None:
    headers = {"Host": "localhost:8091", "Origin": origin}
    assert client.get("/api/v1/runs", headers=headers).status_code == status


def test_security_headers_are_on_everything(guarded: TestClient, client: TestClient) -> None:
    for reply in (client.get("/"), client.get("/api/v1/nowhere"), guarded.get("/api/v1/runs")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["referrer-policy"] == "no-referrer"


# ── the OpenAPI document ───────────────────────────────────────────────────────────────────────


def test_the_document_describes_every_route(client: TestClient) -> None:
    document = get(client, "openapi.json")
    assert document["openapi"] == "3.1.0"
    paths = {path.removeprefix("/api/v1/") for path in document["paths"]}
    of_run = {"configs", "series", "curves", "latest", "events", "processes", "export"}
    of_run |= {"goodput", "goodput/entries", "profiles", "timeline", "heatmap", "heatmap/metrics"}
    of_session = {"", "/stop", "/resume", "/export"}
    assert paths >= (
        {"health", "runs", "runs/{run}", "live", "devices", "sessions", "access", "shares"}
        | {f"runs/{{run}}/{part}" for part in of_run}
        | {f"sessions/{{session}}{part}" for part in of_session}
        | {"profiles", "profiles/{run}/{session}", "profiles/{run}/{session}/files/{name}"}
    )
    curves = document["paths"]["/api/v1/runs/{run}/curves"]["get"]
    buckets = next(p for p in curves["parameters"] if p["name"] == "buckets")
    assert (buckets["schema"]["minimum"], buckets["schema"]["maximum"]) == (1, 10_000)
    assert set(curves["responses"]) >= {"200", "400", "401", "404", "409", "422"}


def attacks() -> list[Any]:
    paths = ("health", "runs", "runs/{run}") + tuple(
        f"runs/{{run}}/{part}"
        for part in ("configs", "series", "curves", "latest", "events", "processes", "export")
        + ("goodput", "goodput/entries", "timeline")
    )
    made = [(path, mode) for path in paths for mode in ("positive", "negative")]
    made.remove(("health", "negative"))  # it takes nothing that could be wrong
    return [pytest.param(path, mode, id=f"{path} {mode}") for path, mode in made]


REAL = st.fixed_dictionaries(
    {
        "run": st.sampled_from(["run-1", "run-2", "bert", "twin", "nobody-s"]),
        "metric": st.lists(st.sampled_from(["loss", "odd", "gpu_used_bytes"]), min_size=1),
    },
    optional={
        "start": st.integers(when(-5), when(130)),
        "end": st.integers(when(-5), when(130)),
        "since": st.integers(when(-5), when(60)),
        "until": st.integers(when(60), when(130)),
        "after": st.just(""),
    },
)


@pytest.mark.parametrize("tries", [8, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("path", "mode"), attacks())
def test_no_request_breaks_the_api(filled: Store, path: str, mode: str, tries: int) -> None:
    import schemathesis  # takes a second, in each worker
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    headers = {"Host": "localhost"}
    app = app_of(filled, clock=FakeClock(NOW))
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    operation = schema[f"/api/v1/{path}"]["GET"]
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=tries,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)), REAL)
    def attack(case: Any, real: dict[str, Any]) -> None:
        if mode == "positive":
            for part in (case.path_parameters or {}, case.query or {}):
                part.update({name: real[name] for name in real.keys() & part.keys()})
        reply = case.call(headers=headers)
        statuses[reply.status_code] += 1
        # That a range must not end before it starts is nothing a schema can say.
        allowed = [positive_data_acceptance] if reply.status_code == 422 else []
        case.validate_response(reply, excluded_checks=allowed)

    attack()
    if mode == "positive":
        assert statuses[200] > 0
    else:
        assert statuses[400] > 0


# ── live ───────────────────────────────────────────────────────────────────────────────────────

PACE = Pace(run_seconds=0.02, all_seconds=0.02, keep_alive_seconds=0.2)


@contextmanager
def served(store: Store, live: Live, clock: FakeClock) -> Iterator[str]:
    """A real server on a free port."""
    app = app_of(store, clock=clock, live=live, serving={"pace": PACE})
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"
        finally:
            live.close()
            server.should_exit = True
            thread.join()


class Stream:
    """Server-sent events as they come."""

    def __init__(self, reply: httpx2.Response) -> None:
        self._lines = reply.iter_lines()
        self.last_id = ""

    def next(self, wanted: str) -> Any:
        name = ""
        for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and name == wanted:
                return json.loads(line[6:])
        raise AssertionError(f"the stream ended before {wanted!r}")

    def comment(self) -> str:
        return next(line for line in self._lines if line.startswith(":"))

    def rest(self) -> list[str]:
        return list(self._lines)


@contextmanager
def listening(url: str, **headers: str) -> Iterator[Stream]:
    with httpx2.stream("GET", url, headers=headers, timeout=100) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield Stream(reply)


def test_a_page_follows_one_run(store: Store) -> None:
    live, clock = Live(), FakeClock(when(1))
    trainer = Producer(store, "j0")
    trainer.write([("loss", 0, 0, 5.0)])
    with served(store, live, clock) as url, listening(f"{url}/live?run=llama") as stream:
        assert stream.next("hello")["run"] == "run-1"
        live.stored([trainer.write([("loss", 1, 1, 4.0), ("lr", 1, 1, 0.1)])])
        run = stream.next("run")
        assert (run["state"], run["last_step"], run["headline"]["value"]) == ("running", 1, 4.0)
        points = stream.next("points")["points"]
        assert {p["metric"]: p["value"] for p in points} == {"loss": 4.0, "lr": 0.1}
        live.stored([trainer.write([("lr", 2, 2, math.nan)])])
        points = stream.next("points")["points"]
        assert [(p["metric"], p["value"]) for p in points] == [("lr", "NaN")]
        live.stored([agent(store).write([], [exited("j0", 3, signal=9)], scope=0)])
        assert stream.next("run")["state"] == "killed"


def test_a_page_follows_all_runs_and_hears_of_silence(store: Store) -> None:
    live, clock = Live(), FakeClock(when(1))
    with served(store, live, clock) as url, listening(f"{url}/live") as stream:
        assert stream.next("hello")["run"] is None
        live.stored([Producer(store, "j0").write([("loss", 1, 1, 4.0)])])
        assert stream.next("run")["run"] == "run-1"
        live.stored([Producer(store, "j1", run="run-9").write([("loss", 1, 1, 4.0)])])
        assert stream.next("run")["run"] == "run-9"
        assert stream.comment() == ": still here"
        clock.now_ns = when(100)  # nothing is stored; time alone tells
        assert [stream.next("run")["state"] for _ in range(2)] == ["lost", "lost"]


def test_a_page_that_returns_is_told_what_it_missed(store: Store) -> None:
    live, clock = Live(), FakeClock(when(1))
    trainer = Producer(store, "j0")
    live.stored([trainer.write([("loss", 0, 0, 5.0)])])
    with served(store, live, clock) as url:
        with listening(f"{url}/live?run=run-1") as stream:
            stream.next("hello")
            known = stream.last_id
        with listening(f"{url}/live?run=run-1", **{"Last-Event-ID": known}) as stream:
            stream.next("hello")
            assert stream.comment() == ": still here"
        live.stored([trainer.write([("loss", 1, 1, 4.0)])])
        with listening(f"{url}/live?run=run-1", **{"Last-Event-ID": known}) as stream:
            assert stream.next("run")["last_step"] == 1
            assert stream.next("points")["points"][0]["value"] == 4.0
            assert stream.last_id != known
        until(lambda: live.subscribers == 0)  # those who left are forgotten


def test_streams_end_when_the_head_stops(store: Store) -> None:
    live = Live()
    with served(store, live, FakeClock()) as url, listening(f"{url}/live") as stream:
        stream.next("hello")
        live.close()
        assert all(line in ("", ": still here") for line in stream.rest())
        refused = httpx2.get(f"{url}/live", timeout=100)
        assert (refused.status_code, error(refused)["code"]) == (503, "unavailable")


def test_there_is_room_for_so_many_and_no_more(store: Store) -> None:
    live = Live(capacity=1)
    with served(store, live, FakeClock()) as url, listening(f"{url}/live") as stream:
        stream.next("hello")
        assert "close one" in error(httpx2.get(f"{url}/live", timeout=100))["message"]


def test_an_export_that_is_broken_off_lets_go_of_the_store(store: Store) -> None:
    trainer = Producer(store, "j0")
    trainer.write([("loss", i / 1000, i, float(i)) for i in range(300_000)])
    with served(store, Live(), FakeClock()) as url:
        with httpx2.stream("GET", f"{url}/runs/run-1/export", timeout=100) as reply:
            assert next(reply.iter_bytes(1000)).startswith(b"run,attempt")
        assert httpx2.get(f"{url}/health", timeout=100).json()["status"] == "ok"
    store.close()  # waits for every reader that is still there


def test_raw_bytes_on_the_wire_do_no_harm(store: Store) -> None:
    with served(store, Live(), FakeClock()) as url:
        port = int(url.split(":")[2].split("/")[0])
        for line in (b"GET /api/v1/runs/%ff%00 HTTP/1.1", b"GET /api/v1/runs?x=\xff HTTP/1.1"):
            with socket.create_connection(("127.0.0.1", port), timeout=100) as wire:
                wire.sendall(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert wire.recv(12).startswith(b"HTTP/1.1 40")
        assert httpx2.get(f"{url}/health", timeout=100).status_code == 200
