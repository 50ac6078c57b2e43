"""Programs made for gswarm at a head with a token: at the address that its owner opened for them,
they and nobody else; and pages of other origins, if the owner listed them."""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from gsprof.command import main

from runwatch.errors import UsageError
from runwatch.head.access import roles
from runwatch.head.access.origins import check_origins
from runwatch.head.settings import HeadSettings
from runwatch.testing import until
from runwatch.wire import gswarm_pb2 as pb
from runwatch.wire import spine_pb2
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium
from tests.integration.test_gsprof import Bench

OWN, OPEN = "127.0.0.1", "127.0.0.2"
TOKEN: Final = "a-token-that-only-we-know"
SERVICE: Final = "/gswarm_profiler.ProfilerService/"


class Guarded(Bench):
    """A head with a token, and an address of its own for programs made for gswarm."""

    origin = ""

    def begin(self, *more: str) -> None:
        self.start_head("--host", OWN, "--token", TOKEN, "--gswarm-open", OPEN, *more)

    def asked(
        self,
        path: str,
        *,
        at: str = OPEN,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection(at, self.http_port, timeout=100)
        said = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, said, dict(headers or {}))
            answer = connection.getresponse()
            text = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            is_json = found.get("content-type", "").startswith("application/json")
            return answer.status, found, json.loads(text) if is_json else text
        finally:
            connection.close()

    def code(self, path: str, **how: Any) -> tuple[int, str]:
        status, _, said = self.asked(path, **how)
        return status, said["error"]["code"] if isinstance(said, dict) and "error" in said else ""


PAGE: Final = "http://dashboard.example:3000"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        made.begin("--cors-origin", PAGE, "--cors-origin", "https://other.example/")
        yield made
    finally:
        made.close()


def test_the_open_address_has_gswarm_and_nothing_else(guarded: Guarded) -> None:
    warning = f"Warning: who reaches {OPEN} needs no token"
    until(lambda: warning in (guarded.root / "log").read_text(), what="a warning")
    with grpc.insecure_channel(f"{OPEN}:{guarded.port}") as channel:
        call = partial(_call, channel)
        hello = pb.InitialInfo(hostname="old", gpus=[pb.GPUInfo(physical_idx=0, name="H100")])
        assert call("Connect", hello, pb.ConnectResponse).message == (
            "Connected successfully. Registered 1 GPUs."
        )
        metric = pb.GPUMetric(physical_idx=0, name="H100", gpu_util=0.5, mem_util=0.25)
        updates = [pb.MetricsUpdate(hostname="old", gpus_metrics=[metric]) for _ in range(3)]
        stream = channel.stream_unary(
            SERVICE + "StreamMetrics",
            request_serializer=pb.MetricsUpdate.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        stream(iter(updates), timeout=100)
        assert call("GetStatus", pb.Empty(), pb.StatusResponse).freq == 50
        spine = channel.stream_stream(
            "/runwatch.v1.Spine/Stream",
            request_serializer=spine_pb2.Up.SerializeToString,
            response_deserializer=spine_pb2.Down.FromString,
        )
        token = [("authorization", f"Bearer {TOKEN}")]
        with pytest.raises(grpc.RpcError) as refused:
            next(spine(iter([spine_pb2.Up(hello=spine_pb2.Hello(host="x"))]), metadata=token))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with grpc.insecure_channel(f"{OWN}:{guarded.port}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            _call(channel, "GetStatus", pb.Empty(), pb.StatusResponse)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    status, _, clients = guarded.asked("/clients")
    assert status == 200 and [c["hostname"] for c in clients["clients"]] == ["old"]
    _check_routes(guarded)
    _check_names(guarded)


def _call(channel: grpc.Channel, method: str, request: Any, reply: Any) -> Any:
    call = channel.unary_unary(
        SERVICE + method,
        request_serializer=type(request).SerializeToString,
        response_deserializer=reply.FromString,
    )
    return call(request, timeout=100)


def _check_routes(guarded: Guarded) -> None:
    """Every route there is, with and without the token, at both addresses."""
    token = {"Authorization": f"Bearer {TOKEN}"}
    for name, need in roles.ROUTES.items():
        method, _, path = name.partition(" ")
        path = re.sub(r"\{[^}]*\}", "x", path)
        body = {"name": "../x"} if method == "POST" else None  # it changes nothing
        asked = partial(guarded.code, path, method=method, body=body)
        if name in roles.GSWARM_ROUTES:
            assert asked()[0] == (400 if method == "POST" else 200), name
        else:
            assert asked() == asked(headers=token) == (403, "not_here"), name
        if need != "anyone":
            assert asked(at=OWN) == (401, "token_needed"), name
    assert guarded.code("/login") == (403, "not_here")
    page = guarded.code("/", headers={"Accept": "text/html,*/*"})
    assert page == (403, "not_here"), "a browser gets no page there"


def _check_names(guarded: Guarded) -> None:
    """A site whose name is made to lead here is refused, and so is its page's request."""
    for host in ("evil.example", f"evil.example:{guarded.http_port}", "127.0.0.2.evil.example"):
        assert guarded.code("/status", headers={"Host": host}) == (403, "wrong_host")
    for host in (OPEN, f"{OPEN}:{guarded.http_port}", "[::1]"):
        assert guarded.code("/status", headers={"Host": host})[0] == 200
    elsewhere = {"Origin": "http://evil.example"}
    start = {"method": "POST", "body": {"name": "x"}, "headers": elsewhere}
    assert guarded.code("/profiling/start", **start) == (403, "cross_origin")
    status, headers, _ = guarded.asked("/status", headers=elsewhere)
    assert status == 403 and "access-control-allow-origin" not in headers


def test_a_token_in_the_address_as_old_programs_can_send_it(guarded: Guarded) -> None:
    """`http://any:TOKEN@head:8091` reaches us as a password.  A browser repeats one by itself, so
    it is worth no more than a cookie."""
    made = guarded.asked(
        "/api/v1/tokens", at=OWN, method="POST", body={"name": "node-7", "role": "operate"},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )[2]["token"]  # fmt: skip
    basic = {"Authorization": "Basic " + base64.b64encode(f"gswarm:{made}".encode()).decode()}
    assert guarded.code("/status", at=OWN, headers=basic) == (200, "")
    wrong = {"Authorization": "Basic " + base64.b64encode(b"gswarm:wrong").decode()}
    assert guarded.code("/status", at=OWN, headers=wrong) == (401, "token_needed")
    foreign = basic | {"Origin": "http://evil.example"}
    start = partial(guarded.code, "/profiling/start", at=OWN, method="POST", body={"name": "x"})
    assert start(headers=foreign) == (403, "cross_origin")
    assert start(headers=basic) == (200, "")
    kept = [path for path in guarded.data.rglob("*") if path.is_file()]
    said = b"".join(path.read_bytes() for path in kept if path.suffix in (".jsonl", ".log"))
    assert made.encode() not in said and made not in (guarded.root / "log").read_text()


def test_listed_origins_and_no_others(guarded: Guarded) -> None:
    page = PAGE
    wanted = {"Access-Control-Request-Method": "POST",
              "Access-Control-Request-Headers": "content-type"}  # fmt: skip
    ask = partial(guarded.asked, "/profiling/start", method="OPTIONS")
    status, headers, _ = ask(headers={"Origin": page, **wanted})
    assert status == 204 and headers["access-control-allow-origin"] == page
    assert "POST" in headers["access-control-allow-methods"]
    assert "content-type" in headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in headers and headers["vary"] == "Origin"
    status, headers, _ = ask(headers={"Origin": "https://other.example", **wanted})
    assert status == 204
    for origin in (
        "http://dashboard.example",
        "https://dashboard.example:3000",
        "http://dashboard.example:3000.evil.example",
        "http://evil.example",
        "null",
    ):
        status, headers, _ = ask(headers={"Origin": origin, **wanted})
        assert status >= 400 and "access-control-allow-origin" not in headers, origin
    status, headers, said = guarded.asked("/status", headers={"Origin": page})
    assert (status, headers["access-control-allow-origin"]) == (200, page) and "freq" in said
    # The page acts as itself: a reader's cookie counts for nothing, a token of its own does.
    _, headers, _ = guarded.asked(f"/api/v1/access?token={TOKEN}", at=OWN)
    cookie = {"Cookie": headers["set-cookie"].partition(";")[0]}
    runs = partial(guarded.code, "/api/v1/runs", at=OWN)
    assert runs(headers=cookie) == (200, "")
    assert runs(headers=cookie | {"Origin": page}) == (401, "token_needed")
    own = {"Origin": page, "Authorization": f"Bearer {TOKEN}"}
    assert runs(headers=own) == (200, "")


@pytest.mark.parametrize("origin", ["*", "null", "dashboard.example", "http://a/b", "http://a b"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match=re.escape(origin)):
        HeadSettings(cors_origins=f"http://fine.example, {origin}")


def test_origins_are_written_as_browsers_do() -> None:
    given = "http://A.example:80/, https://b:443,http://[::1]:3000, http://a.example"
    assert check_origins(given) == ("http://a.example", "https://b", "http://[::1]:3000")


@pytest.mark.parametrize(
    ("bind", "opened", "is_fine"),
    [
        ("0.0.0.0", "10.0.0.5", False),
        ("10.0.0.5", "0.0.0.0", False),
        ("0.0.0.0", "0.0.0.0", True),
        ("127.0.0.1", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.5", True),
    ],
)
def test_which_addresses_go_together(bind: str, opened: str, is_fine: bool) -> None:
    if is_fine:
        assert HeadSettings(bind=bind, gswarm_open=opened).gswarm_apart == (bind != opened)
        return
    with pytest.raises(UsageError, match="overlap"):
        HeadSettings(bind=bind, gswarm_open=opened)


def test_what_cannot_be_is_said_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["start", "--cors-origin", "*"]) == 1
    assert "'*' is no origin" in capsys.readouterr().err


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


FETCHED: Final = """(async () => {
  const base = 'http://%s:%d', json = {'Content-Type': 'application/json'};
  const ask = async (path, body) => {
    try {
      const told = body && {method: 'POST', headers: json, body: JSON.stringify(body)};
      const answer = await fetch(base + path, told);
      return [answer.status, await answer.json()];
    } catch (error) { return [0, String(error)]; }
  };
  return JSON.stringify([
    await ask('/status'), await ask('/profiling/start', {name: 'experiment_1'}),
    await ask('/profiling/sessions'), await ask('/profiling/stop', {name: 'experiment_1'}),
  ]);
})()"""


@pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER)
def test_a_dashboard_in_a_browser(bench: Bench, tmp_path: Path) -> None:
    """The page of another origin asks as a dashboard would: status, start, sessions, stop."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>dashboard</title>")
    serve = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer((OWN, 0), serve) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            place = f"http://{OWN}:{pages.server_port}"
            bench.start_head("--cors-origin", place)
            script = FETCHED % (OWN, bench.http_port)
            with Chromium() as browser, browser.open(place) as page:
                page.until("document.title === 'dashboard'")
                told = json.loads(page.evaluate(script))
        finally:
            pages.shutdown()
            thread.join()
    status, started, sessions, stopped = told
    assert status[0] == started[0] == sessions[0] == stopped[0] == 200, told
    assert started[1]["success"] and started[1]["output_file"] == "experiment_1.json"
    assert [s["name"] for s in sessions[1]["sessions"]] == ["experiment_1"]
    assert stopped[1]["success"]
