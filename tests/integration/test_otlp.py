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
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from runwatch.address import Listening
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import until
from tests.integration.processes import Cluster, end, free_port
from tests.otlp import gauge_request, post
from tests.tokens import urlopen

PROGRAMS: Final = Path(__file__).parent / "otlp_programs"
ORIGINALS: Final = Path(sys.prefix) / "originals"
WHEEL: Final = pytest.mark.skipif(
    not (ORIGINALS / "google_cloud_mldiagnostics").is_dir(),
    reason="the original wheel is not here: `make install` puts it beside the test packages",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def start(
    cluster: Cluster, program: str, *arguments: str, **environment: str
) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "OTEL_"))}
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), str(cluster.root / "truth"), *arguments],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=cluster.log,
        text=True,
    )


def truth_of(cluster: Cluster) -> tuple[list[Any], list[str], list[str]]:
    points, lines, spans = json.loads((cluster.root / "truth").read_text())
    return points, lines, spans


def runs_of(at: Listening) -> dict[str, dict[str, Any]]:
    with urlopen(f"{at.http}/api/v1/runs", timeout=10) as answer:
        return {run["name"]: run for run in json.load(answer)["runs"]}


def run_of(at: Listening, name: str) -> dict[str, Any]:
    found = runs_of(at)
    return found.get(name) or {"state": ""}


class Stored:
    """A head's store, once the head has stopped."""

    def __init__(self, cluster: Cluster) -> None:
        cluster.stop_head()
        self._store = DuckStore.open(cluster.head_root / "store")

    def __enter__(self) -> Stored:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def run(self, name: str) -> RunId:
        return next(row.run for row in self._store.processes() if row.run_name == name)

    def points(self, run: RunId) -> Counter[tuple[str, int, float]]:
        """Metric, time and value of every point."""
        found: Counter[tuple[str, int, float]] = Counter()
        rows = {row.series: row for row in self._store.series(run)}
        for columns in self._store.points(list(rows)):
            for series, time_ns, value in zip(
                columns.series, columns.time_ns, columns.value, strict=True
            ):
                found[rows[int(series)].metric, int(time_ns), float(value)] += 1
        return found

    def events(self, run: RunId, kind: str) -> list[Any]:
        return [row.body for row in self._store.events(run, kinds=[kind])]

    def spans(self, run: RunId) -> list[str]:
        return [row.name for row in self._store.spans(run) if row.edge == 0]


# ── the wheel ──────────────────────────────────────────────────────────────────────────────────


def start_wheel(cluster: Cluster, at: Listening, way: str, token: str = "") -> Any:
    way_in = f"/t/{token}" if token else ""
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}"} if token else {}
    return start(
        cluster,
        "wheel.py",
        way,
        PYTHONPATH=str(ORIGINALS),
        DIAGON_BASE_URL=at.http + way_in,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{at.grpc}",
        OTEL_METRIC_EXPORT_INTERVAL="300",
        JAX_PLATFORMS="cpu",
        **headers,
    )


@WHEEL
def test_the_unmodified_wheel_creates_updates_and_completes_a_run(cluster: Cluster) -> None:
    at = cluster.start_head("--open-ingest")
    program = start_wheel(cluster, at, "ends")
    words, _ = program.communicate(timeout=60)
    assert program.returncode == 0, cluster.words()
    run = run_of(at, "wheel-run")
    assert (run["state"], run["attempts"], run["last_step"]) == ("completed", 1, 2)
    assert words.split()[:2] == ["run", run["run"]], "the id that the head gave"
    given, _, _ = truth_of(cluster)
    assert len(given) >= 3 * 2, "the program sent each step"
    with Stored(cluster) as stored:
        points = stored.points(RunId(run["run"]))
        assert points == Counter((name, time, value[0]) for name, _, time, value in given)
        (config,) = stored.events(RunId(run["run"]), "config")
        assert config["values"] == {"lr": "0.1", "layers": "3"}


@WHEEL
def test_the_wheel_with_a_token_fails_and_is_killed_and_each_is_seen(cluster: Cluster) -> None:
    """On any interface: the token is a part of the base address, and of OTLP's headers."""
    at = cluster.start_head()
    failing = start_wheel(cluster, at, "fails", at.token)
    failing.communicate(timeout=60)
    assert failing.returncode == 1
    run = run_of(at, "wheel-run")
    assert run["state"] == "failed" and "said that it failed" in run["reason"]
    killed = start_wheel(cluster, at, "hangs", at.token)
    until(lambda: run_of(at, "wheel-run")["state"] == "running", 30, cluster.words())
    again = run_of(at, "wheel-run")
    assert (again["run"], again["attempts"]) == (run["run"], 2), "the same name is the same run"
    until(lambda: run_of(at, "wheel-run")["last_step"] == 2, 30, cluster.words())
    end(killed, signal.SIGKILL)
    assert killed.stdout is not None
    killed.stdout.close()
    until(lambda: run_of(at, "wheel-run")["state"] == "lost", 30, cluster.words())
    assert cluster.words().count(at.token) == 2, "as printed at the start; no address is logged"


# ── OpenTelemetry's SDK ────────────────────────────────────────────────────────────────────────


def start_sdk(cluster: Cluster, at: Listening, protocol: str) -> subprocess.Popen[str]:
    return start(
        cluster,
        "sdk.py",
        protocol,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{at.grpc}" if protocol == "grpc" else at.http,
        OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{at.token}",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_RESOURCE_ATTRIBUTES="service.name=trainer,runwatch.rank=3,runwatch.group=team",
    )


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_all_that_an_opentelemetry_program_sends_arrives(cluster: Cluster, protocol: str) -> None:
    at = cluster.start_head()
    program = start_sdk(cluster, at, protocol)
    assert program.communicate(timeout=60)[0] == "done\n" and not program.returncode
    run = run_of(at, "trainer")
    assert (run["state"], run["group"], run["ranks"]) == ("running", "team", 1)
    given, lines, spans = truth_of(cluster)
    with Stored(cluster) as stored:
        points = stored.points(RunId("trainer"))
        wanted: Counter[tuple[str, int, float]] = Counter()
        for name, _, time, value in given:
            endings = ("",) if len(value) == 1 else ("_count", "_sum")
            wanted.update((name + e, time, float(v)) for e, v in zip(endings, value, strict=True))
        names = ("loss", "steps", "free_slots", "wait_seconds_count", "wait_seconds_sum",
                 "sizes_count", "sizes_sum")  # fmt: skip
        assert {name for name, _, _ in wanted} == set(names)
        assert Counter({p: n for p, n in points.items() if p[0] in names}) == wanted
        said = [line for e in stored.events(RunId("trainer"), "console") for line in e["lines"]]
        assert len(said) == len(lines) == 21
        assert all(body in line for body, line in zip(lines, said, strict=True))
        (told,) = stored.events(RunId("trainer"), "exception")
        assert told["type"] == "ValueError" and "one bad batch" in told["text"]
        assert Counter(stored.spans(RunId("trainer"))) == Counter(spans)
        assert len(stored.events(RunId("trainer"), "span_told")) == 20


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
    with Stored(cluster) as stored:
        points = stored.points(RunId("job"))
        assert sorted(points.elements())[-1] == ("loss", 2 * 10**18, 99.0)
        assert set(points.values()) == {1} and len(points) == 51
        assert len(stored._store.series(RunId("job"))) == 1, "one series goes on"


def test_only_who_may_sends_and_by_choice_anybody_here(cluster: Cluster) -> None:
    at = cluster.start_head()
    body = gauge_request("job", "loss", [(10**18, 1.0)]).SerializeToString()
    patch = json.dumps({"logicalId": "some-id", "displayName": "mine"}).encode()
    made = "machineLearningRuns?allow_missing=true"

    def patched(at: Listening, path: str, **more: Any) -> int:
        return post(at, path, patch, kind="application/json", method="PATCH", **more)[0]

    assert post(at, "metrics", body, token="")[0] == 401
    assert post(at, "metrics", body, token="wrong")[0] == 401
    assert patched(at, made, token="") == 401
    assert post(at, "metrics", body, token="", way=f"/t/{at.token}")[0] == 200
    assert patched(at, made, token="", way=f"/t/{at.token}") == 200
    assert patched(at, made, token="", way="/t/wrong") == 401
    cluster.stop_head()
    at = cluster.start_head("--open-ingest", "--otlp-http-port", "0", "--otlp-grpc-port", "0")
    assert post(at, "metrics", body, token="")[0] == 200
    other = re.search(r"by HTTP is taken at port (\d+)", cluster.words())
    assert other is not None and "by gRPC is taken at port" in cluster.words()
    there = replace(at, http=f"http://127.0.0.1:{other[1]}")
    assert post(there, "metrics", body)[0] == 200
    assert patched(at, made, token="") == 200
    assert post(at, "metrics", body, token="wrong")[0] == 401, "a wrong token is not none"
    page = {"Origin": "http://elsewhere.example"}
    assert post(at, "metrics", body, token="", headers=page)[0] == 403
    assert post(at, "metrics", body, token="", headers={"Host": "evil.example"})[0] == 403
    assert post(at, "machineLearningRuns", b"", token="", method="GET")[0] == 401, "no reading"


# ── profiles on demand ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("agent", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_profile_on_demand_reaches_the_port_of_a_program_that_knows_us_not(
    cluster: Cluster, agent: bool
) -> None:
    """Without an agent the head asks by itself."""
    at, port = cluster.start_head("--open-ingest"), free_port()
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
        begun = _api(at, "/runs/profiled/captures", wanted)
        assert begun["hosts"] == ([this_host()] if agent else [])

        def state() -> Any:
            return _api(at, "/runs/profiled/captures/first")

        until(lambda: state()["state"] in ("done", "failed"), 60, cluster.words())
        done = state()
        (process,) = done["processes"]
        assert (done["state"], process["pid"], process["way"]) == ("done", program.pid, "port"), (
            done
        )
        assert process["bytes"] > 1000
        # An agent brings it a moment later.
        (file,) = until(lambda: _api(at, "/profiles/profiled/first")["files"], 30, "the file")
        assert file["name"].endswith(".xplane.pb")
    finally:
        end(program, signal.SIGKILL)
        if program.stdout is not None:
            program.stdout.close()


def _ways(at: Listening, port: int) -> list[tuple[str, bool]]:
    found = _api(at, "/runs/profiled/captures/preflight", {"ports": [port]})
    return [(each["way"], bool(found["hosts"])) for each in found["processes"]]


def _api(at: Listening, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{at.http}/api/v1{path}", data=data)
    with urlopen(asked, timeout=60) as answer:
        return json.load(answer)
