"""Programs that do not know us: the unmodified google-cloud-mldiagnostics, and OpenTelemetry's SDK.

The programs say themselves what the exporters were given (`otlp_programs/given.py`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from runwatch.address import Listening
from runwatch.journal.liveness import this_host
from runwatch.testing import until
from tests.integration.processes import Cluster, end, free_port
from tests.otlp import gauge_request, post
from tests.tokens import urlopen

PROGRAMS: Final = Path(__file__).parent / "otlp_programs"
ORIGINALS: Final = Path(sys.prefix) / "originals"
WHEEL: Final = pytest.mark.skipif(
    not (ORIGINALS / "google_cloud_mldiagnostics").is_dir(),
    reason="no wheel of the original (make test installs it)",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


class Served(NamedTuple):
    """A head that several tests send to, each under a name of its own."""

    cluster: Cluster
    at: Listening


def served(root: Path, *options: str) -> Iterator[Served]:
    cluster = Cluster(root)
    try:
        yield Served(cluster, cluster.start_head(*options))
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def open_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    ports = ("--otlp-http-port", "0", "--otlp-grpc-port", "0")
    yield from served(tmp_path_factory.mktemp("open"), "--open-ingest", *ports)


@pytest.fixture(scope="module")
def closed_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from served(tmp_path_factory.mktemp("closed"))


def start(
    cluster: Cluster, program: str, *arguments: str, **environment: str
) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "OTEL_"))}
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), *arguments],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=cluster.log,
        text=True,
    )


def truth_of(file: Path) -> tuple[list[Any], list[str], list[str]]:
    points, lines, spans = json.loads(file.read_text())
    return points, lines, spans


def api(at: Listening, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{at.http}/api/v1{path}", data=data)
    with urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def run_of(at: Listening, name: str) -> dict[str, Any]:
    found = {run["name"]: run for run in api(at, "/runs")["runs"]}
    return found.get(name) or {"state": ""}


def points_of(at: Listening, run: str) -> Counter[tuple[str, int, float]]:
    """Metric, time and value of every point."""
    rows = api(at, f"/runs/{run}/export?format=json")
    return Counter((row["metric"], ns(row["time"]), float(row["value"])) for row in rows)


def ns(time: str) -> int:
    whole, _, part = time.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 10**9 + int(part.ljust(9, "0"))


def events_of(at: Listening, run: str, kind: str) -> list[Any]:
    return [event["body"] for event in api(at, f"/runs/{run}/events?kind={kind}")["events"]]


# ── the wheel ──────────────────────────────────────────────────────────────────────────────────


def start_wheel(served: Served, truth: Path, name: str, way: str, token: str = "") -> Any:
    at, way_in = served.at, f"/t/{token}" if token else ""
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}"} if token else {}
    return start(
        served.cluster, "wheel.py", str(truth), name, way,
        PYTHONPATH=str(ORIGINALS),
        DIAGON_BASE_URL=at.http + way_in,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{at.grpc}",
        OTEL_METRIC_EXPORT_INTERVAL="300",
        JAX_PLATFORMS="cpu",
        **headers,
    )  # fmt: skip


@WHEEL
def test_the_unmodified_wheel_creates_updates_and_completes_a_run(
    open_head: Served, tmp_path: Path
) -> None:
    at = open_head.at
    program = start_wheel(open_head, tmp_path / "truth", "wheel-run", "ends")
    words, _ = program.communicate(timeout=60)
    assert program.returncode == 0, open_head.cluster.words()
    run = run_of(at, "wheel-run")
    assert (run["state"], run["attempts"], run["last_step"]) == ("completed", 1, 2)
    assert words.split()[:2] == ["run", run["run"]], "the id that the head gave"
    given, _, _ = truth_of(tmp_path / "truth")
    assert len(given) >= 3 * 2, "the program sent each step"
    sent = Counter((name, time, value[0]) for name, _, time, value in given)
    assert points_of(at, run["run"]) == sent
    assert api(at, f"/runs/{run['run']}/configs")["user"] == {"lr": "0.1", "layers": "3"}


@WHEEL
def test_the_wheel_with_a_token_fails_and_is_killed_and_each_is_seen(
    closed_head: Served, tmp_path: Path
) -> None:
    """On any interface: the token is a part of the base address, and of OTLP's headers."""
    cluster, at = closed_head
    failing = start_wheel(closed_head, tmp_path / "truth", "unlucky", "fails", at.token)
    failing.communicate(timeout=60)
    assert failing.returncode == 1
    run = run_of(at, "unlucky")
    assert run["state"] == "failed" and "said that it failed" in run["reason"]
    killed = start_wheel(closed_head, tmp_path / "truth", "unlucky", "hangs", at.token)
    until(lambda: run_of(at, "unlucky")["state"] == "running", 30, cluster.words())
    again = run_of(at, "unlucky")
    assert (again["run"], again["attempts"]) == (run["run"], 2), "the same name is the same run"
    end(killed, signal.SIGKILL)
    assert killed.stdout is not None
    killed.stdout.close()
    until(lambda: run_of(at, "unlucky")["state"] == "lost", 30, cluster.words())
    assert cluster.words().count(at.token) == 2, "as printed at the start; no address is logged"


# ── OpenTelemetry's SDK ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_all_that_an_opentelemetry_program_sends_arrives(
    closed_head: Served, tmp_path: Path, protocol: str
) -> None:
    cluster, at = closed_head
    run, truth = f"trainer-{protocol}", tmp_path / "truth"
    program = start(
        cluster, "sdk.py", str(truth), protocol,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{at.grpc}" if protocol == "grpc" else at.http,
        OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{at.token}",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_RESOURCE_ATTRIBUTES=f"service.name={run},runwatch.rank=3,runwatch.group=team",
    )  # fmt: skip
    assert program.communicate(timeout=60)[0] == "done\n" and not program.returncode
    found = run_of(at, run)
    assert (found["state"], found["group"], found["ranks"]) == ("running", "team", 1)
    given, lines, spans = truth_of(truth)
    wanted: Counter[tuple[str, int, float]] = Counter()
    for name, _, time, value in given:
        endings = ("",) if len(value) == 1 else ("_count", "_sum")
        wanted.update((name + e, time, float(v)) for e, v in zip(endings, value, strict=True))
    names = ("loss", "steps", "free_slots", "wait_seconds_count", "wait_seconds_sum",
             "sizes_count", "sizes_sum")  # fmt: skip
    assert {name for name, _, _ in wanted} == set(names)
    stored = points_of(at, run)
    assert Counter({p: n for p, n in stored.items() if p[0] in names}) == wanted
    said = ["\n".join(event["lines"]) for event in events_of(at, run, "console")]
    assert len(said) == len(lines) == 21
    assert all(body in words for body, words in zip(lines, said, strict=True))
    assert said[-1].endswith("ValueError: one bad batch") and "Traceback" in said[-1]
    assert len(spans) == 20 == len(events_of(at, run, "span_told"))
    shown = api(at, f"/runs/{run}/spans")
    assert Counter(shown["name"]) == Counter(spans)
    assert sorted(shown["step"]) == list(range(20))


# ── exactly once, and who may ──────────────────────────────────────────────────────────────────


def test_a_head_killed_before_its_answer_was_read_stores_nothing_twice(cluster: Cluster) -> None:
    at = cluster.start_head()
    request = gauge_request("job", "loss", [(10**18 + i, float(i)) for i in range(50)])
    assert post(at, "metrics", request.SerializeToString())[0] == 200  # nobody reads it
    assert cluster.head is not None
    end(cluster.head, signal.SIGKILL)
    at = cluster.start_head()
    assert post(at, "metrics", request.SerializeToString())[0] == 200
    more = gauge_request("job", "loss", [(2 * 10**18, 99.0)])
    both = ExportMetricsServiceRequest()
    both.MergeFrom(request)
    both.MergeFrom(more)
    assert post(at, "metrics", both.SerializeToString())[0] == 200, "in another request, too"
    points = points_of(at, "job")
    assert sorted(points.elements())[-1] == ("loss", 2 * 10**18, 99.0)
    assert set(points.values()) == {1} and len(points) == 51
    assert len(api(at, "/runs/job/series")["series"]) == 1, "one series goes on"


BODY: Final = gauge_request("anybodys", "loss", [(10**18, 1.0)]).SerializeToString()


def patched(at: Listening, **more: Any) -> int:
    body = json.dumps({"logicalId": "some-id", "displayName": "mine"}).encode()
    path = "machineLearningRuns?allow_missing=true"
    return post(at, path, body, kind="application/json", method="PATCH", **more)[0]


def test_only_who_has_a_token_sends(closed_head: Served) -> None:
    at = closed_head.at
    assert post(at, "metrics", BODY, token="")[0] == 401
    assert post(at, "metrics", BODY, token="wrong")[0] == 401
    assert patched(at, token="") == 401
    assert post(at, "metrics", BODY, token="", way=f"/t/{at.token}")[0] == 200
    assert patched(at, token="", way=f"/t/{at.token}") == 200
    assert patched(at, token="", way="/t/wrong") == 401


def test_by_choice_anybody_on_this_machine_sends_and_reads_nothing(open_head: Served) -> None:
    cluster, at = open_head
    assert post(at, "metrics", BODY, token="")[0] == 200
    assert patched(at, token="") == 200
    other = re.search(r"by HTTP is taken at port (\d+)", cluster.words())
    assert other is not None and "by gRPC is taken at port" in cluster.words()
    assert post(replace(at, http=f"http://127.0.0.1:{other[1]}"), "metrics", BODY)[0] == 200
    assert post(at, "metrics", BODY, token="wrong")[0] == 401, "a wrong token is not none"
    page = {"Origin": "http://elsewhere.example"}
    assert post(at, "metrics", BODY, token="", headers=page)[0] == 403
    assert post(at, "metrics", BODY, token="", headers={"Host": "evil.example"})[0] == 403
    assert post(at, "machineLearningRuns", b"", token="", method="GET")[0] == 401, "no reading"


# ── profiles on demand ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("agent", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_profile_on_demand_reaches_the_port_of_a_program_that_knows_us_not(
    request: pytest.FixtureRequest, agent: bool
) -> None:
    """Without an agent the head asks by itself."""
    if agent:
        cluster = request.getfixturevalue("cluster")
        at = cluster.start_head("--open-ingest")
    else:
        cluster, at = request.getfixturevalue("open_head")
    port = free_port()
    if agent:
        cluster.start_agent()
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "profiled.py"), at.http, str(port)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=cluster.log,
        text=True,
    )
    try:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        if agent:
            until(lambda: _ways(at, port) == [("port", cluster.agent is not None)], 30)
        wanted = {"duration_ms": 300, "ports": [port], "session": "first"}
        begun = api(at, "/runs/profiled/captures", wanted)
        assert begun["hosts"] == ([this_host()] if agent else [])

        def state() -> Any:
            return api(at, "/runs/profiled/captures/first")

        until(lambda: state()["state"] in ("done", "failed"), 60, cluster.words())
        done = state()
        (process,) = done["processes"]
        assert (done["state"], process["pid"], process["way"]) == ("done", program.pid, "port"), (
            done
        )
        assert process["bytes"] > 1000
        # An agent brings it a moment later.
        (file,) = until(lambda: api(at, "/profiles/profiled/first")["files"], 30, "the file")
        assert file["name"].endswith(".xplane.pb")
    finally:
        end(program, signal.SIGKILL)
        if program.stdout is not None:
            program.stdout.close()


def _ways(at: Listening, port: int) -> list[tuple[str, bool]]:
    found = api(at, "/runs/profiled/captures/preflight", {"ports": [port]})
    return [(each["way"], bool(found["hosts"])) for each in found["processes"]]
